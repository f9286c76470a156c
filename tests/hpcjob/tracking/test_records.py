"""The index: whole lines only, whatever else lies in its files; jobs found by id, name or `latest` from anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hpcjob.errors import HpcjobError, UnknownJobError
from hpcjob.states import State
from hpcjob.tracking import index
from hpcjob.tracking.index import append, ensure_writable, read_index, room_for_record, state_dir
from hpcjob.tracking.lookup import find_job
from hpcjob.tracking.records import Change, Record


def record(job_id: str, name: str = "job", *, profile: str = "lab", minute: int = 0, **fields: str) -> Record:
    """Return a record submitted ``minute`` minutes after noon."""
    return Record(
        profile=profile,
        scheduler="slurm",
        server=fields.pop("server", ""),
        id=job_id,
        submitted=f"2025-11-29T12:{minute:02d}:00.000000+00:00",
        name=name,
        directory=fields.pop("directory", f"/work/{job_id}"),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "name", ["plain", "日本語", "a b", "../../x", "-rf", "$(id)", 'quo"te\n', "x" * 10_000, "\x1b[2J"]
)
def test_any_name_comes_back(name: str) -> None:
    """Names, profiles and paths of any text are stored and found unchanged."""
    kept = record("1", name, profile=name, directory=f"/work/{name}")
    append(kept)
    seen = kept.change(State.RUNNING)
    append(seen)
    index = read_index()
    assert index.records == [kept]
    assert index.last_change(kept) == seen
    assert not index.damaged
    assert find_job(name) == kept
    assert all(path.parent == state_dir() for path in state_dir().rglob("*.jsonl"))


def test_newest_first_across_files() -> None:
    """The order is that of the submissions, whichever cluster's file they are in."""
    for job, minute in (("1", 3), ("2", 1), ("3", 2)):
        append(record(job, profile=f"cluster{job}", minute=minute))
    assert [found.id for found in read_index().records] == ["1", "3", "2"]


def damaged(event: str = "submitted", **wrong: object) -> bytes:
    """Return a line of the index with wrong values in it."""
    line = {"event": event, "profile": "lab", "server": "", "id": "9", "submitted": "2025-11-29T12:00:00Z"}
    if event == "submitted":
        line |= {"scheduler": "slurm", "name": "n", "directory": "/x"}
    else:
        line |= {"time": "2025-11-29T12:00:00Z"} | ({"state": "RUNNING"} if event == "state" else {})
    return json.dumps({**line, **wrong}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        damaged(submitted="2025-11-29T12:00:00"),
        damaged(submitted="9999-12-31T23:59:59-10:00"),
        damaged(scheduler="loadleveler"),
        damaged(directory="/x\0y"),
        damaged(directory="x"),
        damaged(log="/x\0y"),
        damaged(name="a\0"),
        damaged(server="a\0"),
        damaged(id="--all"),
        damaged(id="../9"),
        damaged("state", time="2025-11-29T12:00:00"),
        damaged("state", time="noon"),
        damaged("state", submitted="2025-11-29"),
        damaged("cancel", time="x"),
        b"[" * 100_000,
        b'{"event":' + b"[" * 100_000,
        b'{"event": "submitted", "profile": "lab", "sch',
        b"\xff\xfe\x00garbage",
        b"[]\n42\nnull",
        b'{"event": "unheard of"}',
        b'{"event":"submitted","profile":"lab","scheduler":"slurm","server":"","id":"9","submitted":"noon",'
        b'"name":"n","directory":"/x"}',
        b'{"event":"state","profile":"lab","server":"","id":"1","submitted":"2026-11-29T12:00:00Z",'
        b'"state":"GONE","time":"x"}',
    ],
)
def test_a_damaged_line_costs_itself_alone(damage: bytes) -> None:
    """What a crash or an editor left is counted; what was appended before and after it is read."""
    append(record("1"))
    (file,) = state_dir().glob("*.jsonl")
    with file.open("ab") as stream:
        stream.write(damage)
    append(record("2", minute=1))
    index = read_index()
    assert [found.id for found in index.records] == ["2", "1"]
    assert sum(index.damaged.values()) >= 1


def test_a_torn_last_line_is_closed_by_the_next_append() -> None:
    """A submission after a crash does not grow onto the torn line."""
    append(record("1"))
    (file,) = state_dir().glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-20])
    append(record("2"))
    assert [found.id for found in read_index().records] == ["2"]
    assert file.read_bytes().count(b"\n") == 2


def test_only_regular_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would block, a device has no end, a folder is no file; none is written to either."""
    append(record("1"))
    os.mkfifo(state_dir() / "pipe@host.jsonl")
    (state_dir() / "zero@host.jsonl").symlink_to("/dev/zero")
    (state_dir() / "folder@host.jsonl").mkdir()
    index = read_index()
    assert [found.id for found in index.records] == ["1"]
    assert not index.damaged
    assert {path.name: reason for path, reason in index.unread.items()} == {
        "pipe@host.jsonl": "no regular file",
        "zero@host.jsonl": "no regular file",
        "folder@host.jsonl": "Is a directory",
    }
    (file,) = state_dir().glob("lab@*.jsonl")
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(HpcjobError, match="no regular file"):
        ensure_writable("lab")


@pytest.mark.parametrize("wrong", [{"name": "\udcff"}, {"name": "a\0"}, {"directory": "/\udcff"}, {"scheduler": "x"}])
def test_what_nobody_could_read_back_is_not_written(wrong: dict[str, str]) -> None:
    """An error instead of a damaged line; it names the index."""
    with pytest.raises(OSError, match="cannot be recorded") as caught:
        append(msgspec.structs.replace(record("1"), **wrong))
    assert str(state_dir()) in str(caught.value.filename)
    assert not read_index().damaged


def at(time: str, state: State, of: Record) -> Change:
    """Return that ``of`` was seen in ``state`` at ``time``."""
    return msgspec.structs.replace(of.change(state), time=time)


def test_a_clock_that_jumped_changes_no_order() -> None:
    """Within a file the lines are in order, whatever they are dated; what lies in the future comes after no other."""
    job, later = record("1", minute=5), record("2", minute=1)
    append(job)
    append(at("2999-01-01T00:00:00+00:00", State.PENDING, job))
    append(at("2025-11-29T12:06:00+00:00", State.RUNNING, job))
    append(later)
    index = read_index()
    assert [found.id for found in index.records] == ["2", "1"]
    assert [change.state for change in index.changes[job.key]] == [State.PENDING, State.RUNNING]


def test_a_note_of_another_host_from_the_future_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen here after it: what was seen here counts, and is not noted again each time."""
    job = record("1")
    append(job)
    append(at("2999-01-01T00:00:00+00:00", State.PENDING, job))
    host = os.uname().nodename
    (state_dir() / f"lab@{host}.jsonl").rename(state_dir() / "lab@another.jsonl")
    append(job.change(State.RUNNING))
    seen = read_index().last_change(job)
    assert seen is not None
    assert seen.state is State.RUNNING


def test_space_is_held_while_a_job_is_submitted() -> None:
    """As much as a long record takes; it is given back at the end."""
    with room_for_record("lab"):
        (held,) = state_dir().glob(".room-*")
        assert held.stat().st_size >= 40_000
    assert not list(state_dir().glob(".room-*"))


def test_no_space_for_a_record_is_told_before_a_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk shows itself at the latest when the data are to be kept."""

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index.os, "fsync", full)
    with (
        pytest.raises(HpcjobError, match=r"lab@.*No space left on device.*nothing was submitted"),
        room_for_record("lab"),
    ):
        pytest.fail("went on")
    assert not list(state_dir().glob(".room-*"))


def test_concurrent_appends_lose_nothing() -> None:
    """Four processes append 50 lines each; 200 whole lines are there."""
    code = (
        "import sys\nfrom hpcjob.tracking.index import append\n"
        "from tests.hpcjob.tracking.test_records import record\n"
        "for number in range(50): append(record(f'{sys.argv[1]}{number}', 'x' * 3000))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    children = [subprocess.Popen([sys.executable, "-c", code, str(n)], env=environment) for n in range(1, 5)]
    assert [child.wait() for child in children] == [0] * 4
    index = read_index()
    assert len({found.id for found in index.records}) == 200
    assert not index.damaged


def test_finding() -> None:
    """By id, profile:id, name, beginning of a name, folder, a server's short id, latest; of one name the newest."""
    old, new = record("1", "gpt-125M", minute=0), record("2", "gpt-125M", minute=5)
    other = record("3", "bench", minute=2)
    pbs = record("77.pbs1", "on-pbs", profile="abci3", minute=1)
    for entry in (pbs, old, other, new):
        append(entry)
    assert find_job("latest") == new
    assert find_job("1") == old
    assert find_job("lab:1") == old
    assert find_job("gpt-125M") == new
    assert find_job("gpt") == new
    assert find_job("/work/3") == other
    assert find_job("77") == pbs


def test_an_id_that_came_round_again_is_the_newest() -> None:
    """Ids of one cluster wrap; the newest is meant."""
    append(record("5", "old", minute=0))
    append(record("5", "new", minute=1))
    assert find_job("5").name == "new"


def test_what_cannot_be_told_apart_is_listed() -> None:
    """An id of two clusters, or a beginning of two names, is refused with the choices."""
    append(record("5", "a-one", profile="lab"))
    append(record("5", "a-two", profile="abci3", minute=1))
    with pytest.raises(UnknownJobError, match="several") as caught:
        find_job("5")
    assert "lab:5 (a-one)" in str(caught.value.hint)
    assert find_job("abci3:5").name == "a-two"
    with pytest.raises(UnknownJobError, match="several"):
        find_job("a-")


def test_an_unknown_job_names_the_newest() -> None:
    """The hint helps with a mistyped id; with no jobs at all it says how to begin."""
    with pytest.raises(UnknownJobError, match="no jobs are recorded"):
        find_job("1")
    append(record("4711", "gpt"))
    for text in ("4712", "", "nope/", "lab:"):
        with pytest.raises(UnknownJobError) as caught:
            find_job(text)
        assert "4711 (gpt)" in str(caught.value.hint)


def test_an_index_that_cannot_be_written_is_told_before_a_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the folder should be: nothing is submitted that could not be found again."""
    place = Path("state-is-a-file")
    place.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(place.absolute()))
    with pytest.raises(HpcjobError, match="nothing was submitted") as caught:
        ensure_writable("lab")
    assert "XDG_STATE_HOME" in str(caught.value.hint)


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write is not taken for a record."""
    ensure_writable("lab")
    monkeypatch.setattr(index.os, "write", lambda handle, data: len(data) - 1)
    with pytest.raises(OSError, match="bytes were written") as caught:
        append(record("1"))
    assert str(caught.value.filename).endswith(".jsonl")


def test_soft_ends_are_asked_again() -> None:
    """A job that lost its node or was preempted may start again by itself: for a day that is not its end."""
    job = record("1")
    assert not job.change(State.NODE_FAIL).is_final
    assert not job.change(State.PREEMPTED).is_final
    assert job.change(State.FAILED, 1).is_final
    assert not job.change(State.RUNNING).is_final
    append(job)
    append(job.change(State.COMPLETED, 0))
    assert read_index().ended(job)

"""Following goes from a job to the one that continues its run, where the records say so."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcjob.logs.filters import LineFilter
from hpcjob.logs.output import Output
from hpcjob.logs.succession import successor
from hpcjob.logs.tail import Request, show
from hpcjob.logs.target import resolve
from hpcjob.states import State
from hpcjob.tracking.index import append, read_index
from hpcjob.tracking.records import Record

from .test_digest import iterations

SAVED = 85


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def submit(
    root: Path, job_id: str, *, name: str = "実験", code: int | None = 0, text: str = "", **fields: Any
) -> Record:
    """Record a job of this machine; with a code it has ended."""
    directory = root / "outputs" / name / f"run-{job_id}"
    directory.mkdir(parents=True)
    (directory / f"{job_id}_job.out").write_text(text)
    (directory / "job.yml").write_text("name: x\n" + "".join(f"{key}: {value}\n" for key, value in fields.items()))
    if code is not None:
        end(directory, job_id, code)
    record = Record(
        profile="local",
        scheduler="local",
        server=socket.gethostname(),
        id=job_id,
        submitted=f"2026-01-01T00:00:{int(job_id):02d}+00:00",
        name=name,
        directory=str(directory),
    )
    append(record)
    return record


def end(directory: Path, job_id: str, code: int) -> None:
    record = {"code": code, "signal": None, "time": "2026-01-01T01:00:00+00:00", "host": "node01", "step": None}
    (directory / f"{job_id}_exit.json").write_text(json.dumps(record))


def test_a_job_that_saved_for_the_walltime_has_the_next_of_its_name(tmp_path: Path) -> None:
    """The next one submitted, of the same name and folder; not an earlier one, nor one of another name."""
    submit(tmp_path, "10", code=SAVED)
    first = submit(tmp_path, "11", code=SAVED)
    submit(tmp_path, "12", name="other")
    second = submit(tmp_path, "13")
    submit(tmp_path, "14")
    assert successor(first, read_index()) == second


def test_one_that_completed_or_failed_has_none(tmp_path: Path) -> None:
    """A later job of the same name is another run then, unless it says that it comes after."""
    for code in (0, 1):
        record = submit(tmp_path, f"{20 + 2 * code}", name=f"n{code}", code=code)
        submit(tmp_path, f"{21 + 2 * code}", name=f"n{code}")
        assert successor(record, read_index()) is None
    named = submit(tmp_path, "30", name="another", after=f"{{any: [{20}]}}")
    assert successor(read_index().records[-1], read_index()) == named


@pytest.mark.parametrize("after", ["{notok: [20]}", "[21]", "{", "x: [", "\x01", "!!int"])
def test_what_does_not_say_so(tmp_path: Path, after: str) -> None:
    """Another condition, another id, a damaged job file."""
    record = submit(tmp_path, "20")
    submit(tmp_path, "25", name="b", after=after)
    assert successor(record, read_index()) is None


def test_a_preempted_job(tmp_path: Path) -> None:
    """What the scheduler did to it counts where the job could not say anything itself."""
    record = submit(tmp_path, "40", code=None)
    append(record.change(State.PREEMPTED))
    second = submit(tmp_path, "41")
    assert successor(record, read_index()) == second


def test_follow_shows_the_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-f on the first job ends with the last: rows of all, and a line where the job changes."""
    submit(tmp_path, "50", code=SAVED, text=iterations(1, 5))
    last = submit(tmp_path, "51", code=None)
    log = last.jobdir / "51_job.out"
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            log.write_text(iterations(4, 8))
        elif len(waited) == 4:
            end(last.jobdir, "51", 0)
        assert len(waited) < 60

    monkeypatch.setattr("hpcjob.logs.digest_show.time.sleep", sleep)
    monkeypatch.setattr(
        "hpcjob.tracking.job_ended", lambda record, _: (record.jobdir / f"{record.id}_exit.json").exists()
    )
    out = io.StringIO()
    show(resolve(["50"]), Request("digest", LineFilter(), follow=True), Output(out))
    rows = out.getvalue().splitlines()
    assert [row.split()[0] for row in rows if "/1000" in row] == [f"{n}/1000" for n in (1, 2, 3, 4, 5, 4, 5, 6, 7, 8)]
    assert rows[6] == "==> job 50 has ended; the run continues in job 51"

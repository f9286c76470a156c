"""Following files: appended, late, truncated, replaced; the last lines without reading all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.errors import InputError
from hpcjob.logs.file_tail import FileTail
from hpcjob.logs.follow import Follower, follow, pause, pauses
from hpcjob.logs.lines import Line
from hpcjob.logs.sources import JobFiles, Source, listed


def texts(lines: Iterator[Line]) -> list[str]:
    return [line.text for line in lines]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def one(line: Line) -> tuple[Line]:
    return (line,)


def last(path: Path, count: int, *, final: bool = True, select: Callable[[Line], tuple[Line, ...]] = one) -> list[str]:
    return texts(Follower(listed([path])).last(count, select, final=final))


def test_only_whole_lines_and_only_once(tmp_path: Path) -> None:
    """A line comes when its newline has, also if a character was cut between two reads."""
    path = tmp_path / "12_job.out"
    tail = FileTail(Source(path))
    assert texts(tail.poll()) == []  # does not exist yet
    word = "損失\n".encode()
    append(path, b"one\ntwo" + word[:2])
    assert texts(tail.poll()) == ["one"]
    append(path, word[2:])
    assert texts(tail.poll()) == ["two損失"]
    append(path, b"rest")
    assert texts(tail.poll()) == []
    assert texts(tail.finish()) == ["rest"]
    assert texts(tail.finish()) == []


def test_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    """A file that became shorter was written anew; what was unfinished is not lost."""
    path = tmp_path / "log"
    append(path, b"a long first line\nunfinished")
    tail = FileTail(Source(path))
    assert texts(tail.poll()) == ["a long first line"]
    path.write_bytes(b"new\n")
    assert texts(tail.poll()) == ["unfinished", "new"]


def test_replaced_file_is_read_to_its_end_first(tmp_path: Path) -> None:
    """Rotation between two polls loses nothing: the old file's last lines come before the new file's first."""
    path = tmp_path / "log"
    append(path, b"1\n")
    tail = FileTail(Source(path))
    assert texts(tail.poll()) == ["1"]
    append(path, b"2\n")
    path.rename(tmp_path / "log.1")
    append(tmp_path / "log.1", b"3\n")
    append(path, b"4\n5\n")
    assert texts(tail.poll()) == ["2", "3", "4", "5"]


def test_replaced_file_without_an_open_descriptor(tmp_path: Path) -> None:
    """With hundreds of files none is held open; a new file of the same name is still noticed, even a longer one."""
    path = tmp_path / "log"
    append(path, b"1\n")
    tail = FileTail(Source(path), keep_open=False)
    assert texts(tail.poll()) == ["1"]
    (tmp_path / "new").write_bytes(b"new 1\nnew 2\n")
    (tmp_path / "new").replace(path)
    assert texts(tail.poll()) == ["new 1", "new 2"]


def test_removed_file_is_read_on(tmp_path: Path) -> None:
    """Its writer may still have it open."""
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"1\n")
        tail = FileTail(Source(path))
        assert texts(tail.poll()) == ["1"]
        path.unlink()
        writer.write(b"2\n")
        assert texts(tail.poll()) == ["2"]
    tail.close()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Polling hundreds of times, with replacement and truncation, keeps one descriptor a file, and close returns it."""
    path = tmp_path / "log"
    append(path, b"1\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    follower = Follower(listed([path]))
    for number in range(50):
        list(follower.poll())
        (tmp_path / "new").write_bytes(b"x\n" * number)
        (tmp_path / "new").replace(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    follower.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    """A directory in a file's place is one line of error, not a hang or a traceback."""
    (tmp_path / "log").mkdir()
    with pytest.raises(InputError, match="no regular file"):
        list(FileTail(Source(tmp_path / "log")).poll())
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="no regular file"):
        list(FileTail(Source(tmp_path / "fifo")).poll())


def test_follow_ends_when_the_job_has_and_all_is_read(tmp_path: Path) -> None:
    """Lines written between the job's end and the reader's last look still come, also an unfinished last one."""
    path = tmp_path / "12_job.out"
    steps = iter([b"", b"first\n", b"second\nthi", b"rd\n", b"last without newline"])

    def stop() -> bool:
        """A job that writes a piece each time it is asked for, and has ended with the last one."""
        data = next(steps, None)
        if data:
            append(path, data)
        return data is not None and data.startswith(b"last")

    lines = list(follow([path], stop=stop, poll_s=0.001))
    assert [line.text for line in lines] == ["first", "second", "third", "last without newline"]
    assert [line.offset for line in lines] == [0, 6, 13, 19]
    assert {line.source for line in lines} == {str(path)}


def test_follow_takes_up_files_that_appear(tmp_path: Path) -> None:
    """Rank files come as ranks start; each is read from its start, with its rank."""
    files = JobFiles(tmp_path, "12")
    number = 0

    def stop() -> bool:
        nonlocal number
        append(tmp_path / f"12_{number}_log.out", b"hello\n")
        append(tmp_path / f"13_{number}_log.out", b"another job's\n")
        number += 1
        return number == 3

    lines = list(follow(files.all, stop=stop, poll_s=0.001))
    assert [(line.rank, line.text) for line in lines] == [(0, "hello"), (1, "hello"), (2, "hello")]


def test_waits_grow_to_a_second() -> None:
    """An idle log is looked at ever more seldom, but a line is always seen within a second."""
    waits = pauses(0.4)
    times = [next(waits) for _ in range(20)]
    assert times[0] == 0.4
    assert times == sorted(times)
    assert 0.5 < times[-1] < 1.0


def test_thousands_of_files_do_not_take_a_core() -> None:
    """A look that costs much is followed by a longer wait: at most 8 % of a core, or 25 % while lines come."""
    assert pause(0.4, 0.01, came=False) == 0.4
    assert pause(0.4, 0.8, came=False) == pytest.approx(0.8 / 0.08 - 0.8)
    assert pause(0.4, 0.8, came=True) == pytest.approx(0.8 / 0.25 - 0.8)


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"")), max_size=30),
    ended=st.booleans(),
    count=st.integers(0, 35),
)
@settings(max_examples=150, deadline=None)
def test_last_lines_are_those_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, count: int
) -> None:
    """Reading from the end gives what reading all and keeping the last would, whatever the bytes."""
    path = tmp_path_factory.mktemp("last") / "log"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ended and lines else b""))
    whole = texts(follow([path], stop=lambda: True, poll_s=0.001))
    assert last(path, count) == (whole[-count:] if count else [])


def test_last_items_are_looked_for_further_back(tmp_path: Path) -> None:
    """Rare lines far from the end are found; common ones stop the search early."""
    path = tmp_path / "log"
    path.write_bytes(b"wanted 1\nwanted 2\n" + b"noise\n" * 20_000 + b"wanted 3\n")

    def wanted(line: Line) -> tuple[Line, ...]:
        return (line,) if line.text.startswith("wanted") else ()

    assert last(path, 2, select=wanted) == ["wanted 2", "wanted 3"]
    assert last(path, 9, select=wanted) == ["wanted 1", "wanted 2", "wanted 3"]


def test_following_goes_on_where_the_last_lines_ended(tmp_path: Path) -> None:
    """After the last lines an unfinished one is neither lost nor shown twice."""
    path = tmp_path / "log"
    path.write_bytes(b"1\n2\n3\nunfin")
    follower = Follower(listed([path]))
    assert texts(follower.last(2, one, final=False)) == ["2", "3"]
    append(path, b"ished\n4\n")
    assert texts(follower.poll()) == ["unfinished", "4"]


MEASURE = """
import sys
from hpcjob.cli import main
code = main(["tail", sys.argv[1], "--raw", "-n", "10"])
read = next(line for line in open("/proc/self/io") if line.startswith("rchar"))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(read.split()[1], peak.split()[1], file=sys.stderr)
sys.exit(code)
"""


def test_last_lines_of_a_large_file_are_cheap(tmp_path: Path) -> None:
    """Of 200 MB the kernel counts a few MB read (most of it Python's own modules), and memory stays under 60 MB."""
    path = tmp_path / "large.log"
    block = (
        b"".join(b"node01:100:101 [0] NCCL INFO Channel %02d/16 : 0 1 2 3\n" % number for number in range(16)) * 1200
    )
    with path.open("wb") as file:
        for _ in range(200_000_000 // len(block) + 1):
            file.write(block)
        file.write(b"the end\n")
    assert path.stat().st_size > 200_000_000
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    path.unlink()
    read_bytes, peak_kib = map(int, done.stderr.split())
    assert done.stdout.splitlines()[-1] == "the end"
    assert len(done.stdout.splitlines()) == 10
    assert read_bytes < 20_000_000
    assert peak_kib < 60_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_in_utf16_is_followed(encoding: str, tmp_path: Path) -> None:
    """Characters may come in halves; the last lines are found without reading all."""
    path = tmp_path / "job.log"
    whole = "".join(f"line {number} \u00e9\n" for number in range(20_000)).encode(encoding)
    path.write_bytes(whole[:30_001])
    follower = Follower(listed([path]))
    before = texts(follower.poll())
    append(path, whole[30_001:])
    assert [*before, *texts(follower.poll())] == [f"line {number} \u00e9" for number in range(20_000)]
    last = list(Follower(listed([path])).last(2, lambda line: (line.text,), final=False))
    assert last == ["line 19998 \u00e9", "line 19999 \u00e9"]

"""One run a save folder: who holds the lock, who may take it over, whose temporary folders may go."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neoxlite.checkpoint import lock as locking
from neoxlite.checkpoint.folder import saved_iterations
from neoxlite.checkpoint.lock import LOCK, SaveLock
from neoxlite.checkpoint.owner import Owner
from neoxlite.errors import CheckpointError

_WAITS = "from neoxlite.checkpoint.owner import Owner; print(Owner.this(), flush=True); input()"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Start a process that tells its owner text in a line and lives until its input ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


def owner_of(process: subprocess.Popen[str]) -> Owner:
    """Return the owner that the process told."""
    assert process.stdout is not None
    owner = Owner.parse(process.stdout.readline().strip())
    assert owner is not None
    return owner


def hold(root: Path, owner: Owner) -> None:
    """Write a lock of ``owner``."""
    root.mkdir(exist_ok=True)
    (root / LOCK).write_text(json.dumps({"owner": str(owner), "since": "2026-01-02T03:04:05+09:00"}))


def test_a_process_is_alive_until_it_has_ended(other: subprocess.Popen[str]) -> None:
    """Its number and start tell it; another start or boot with the same number is another process, that has ended."""
    owner = owner_of(other)
    assert owner.pid == other.pid
    assert owner.is_alive is True
    assert dataclasses.replace(owner, started=owner.started - 1).is_alive is False
    assert dataclasses.replace(owner, boot="0").is_alive is False
    assert dataclasses.replace(owner, host="elsewhere").is_alive is None
    other.kill()
    other.wait()
    assert owner.is_alive is False


def test_a_run_that_saves_nothing_leaves_no_folder(tmp_path: Path) -> None:
    """As one whose data are missing; what was there before, or holds anything, stays."""
    with SaveLock(tmp_path / "runs" / "ck") as lock:
        lock.acquire()
        (tmp_path / "mine").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with SaveLock(tmp_path / "mine") as lock:
        lock.acquire()
    with SaveLock(tmp_path / "runs" / "ck") as lock:
        lock.acquire()
        (tmp_path / "runs" / "notes").write_text("")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        *("mine", "runs", "runs/notes")
    ]


def test_the_second_run_is_refused_by_the_first_one_s_name(other: subprocess.Popen[str], tmp_path: Path) -> None:
    """Host, process and time are in the message, and the lock is left as it was."""
    owner = owner_of(other)
    hold(tmp_path / "ck", owner)
    with pytest.raises(CheckpointError, match=f"process {owner.pid} on {owner.host}, since 2026-01-02") as caught:
        SaveLock(tmp_path / "ck").acquire()
    assert caught.value.exit_code == 2
    assert str(owner) in (tmp_path / "ck" / LOCK).read_text()


def test_the_lock_of_a_dead_process_is_taken_over(other: subprocess.Popen[str], tmp_path: Path) -> None:
    """After kill -9 of its owner a lock does not stand in the way; at the end it is gone."""
    hold(tmp_path / "ck", owner_of(other))
    other.kill()
    other.wait()
    with SaveLock(tmp_path / "ck") as lock:
        lock.acquire()
        assert str(Owner.this()) in (tmp_path / "ck" / LOCK).read_text()
    assert list((tmp_path / "ck").iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"owner": 3}', None])
def test_a_lock_of_another_host_is_judged_by_its_renewal(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchanged for the time of expiry it is taken over, as one without a readable owner; renewed, it is refused."""
    waited: list[float] = []
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(locking.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(locking.time, "sleep", waited.append)
    path = tmp_path / LOCK
    hold(tmp_path, dataclasses.replace(Owner.this(), host="elsewhere"))
    if content is not None:
        path.write_text(content)
    with SaveLock(tmp_path) as lock:
        lock.acquire()
    assert waited
    hold(tmp_path, dataclasses.replace(Owner.this(), host="elsewhere"))
    monkeypatch.setattr(locking.time, "sleep", lambda _: path.touch())
    with pytest.raises(CheckpointError, match="on elsewhere"):
        SaveLock(tmp_path).acquire()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_that_is_no_file_is_told_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A folder or a pipe of its name is no run's: it is not waited for, and left there."""
    make(tmp_path / LOCK)
    with pytest.raises(CheckpointError, match=f"save: {tmp_path / LOCK} is not a file"):
        SaveLock(tmp_path).acquire()
    assert (tmp_path / LOCK).exists()


def test_two_trainings_into_one_folder(
    train: Any, command: Any, config_of: Any, text_data: str, other: subprocess.Popen[str], tmp_path: Path
) -> None:
    """``train`` refuses the folder of a living run with exit code 2 and one line, on every rank."""
    root = tmp_path / "ck"
    hold(root, owner_of(other))
    config_of(1, data_path=text_data, save=str(root), checkpoint_factor=5)
    code, _, err = command("train", str(tmp_path / "tiny.yml"))
    assert code == 2
    assert f"another run saves to {root}" in err
    with pytest.raises(AssertionError, match="another run saves to"):
        train(2, save=str(root), checkpoint_factor=5)
    assert [path.name for path in root.iterdir()] == [LOCK]


def test_temporary_folders_of_the_living_stay(train: Any, other: subprocess.Popen[str], tmp_path: Path) -> None:
    """A save removes what dead runs left and not what a living process of this host is writing."""
    owner = owner_of(other)
    dead = dataclasses.replace(owner, started=owner.started - 1)
    root = tmp_path / "ck"
    for name in (f".global_step4.{owner}.tmp", f".global_step4.{dead}.tmp", ".global_step4.tmp"):
        (root / name).mkdir(parents=True)
        (root / name / "layer_00.safetensors").write_bytes(b"half")
    train(1, save=str(root), checkpoint_factor=5)
    assert saved_iterations(root) == [5, 10]
    assert [path.name for path in root.glob(".*")] == [f".global_step4.{owner}.tmp"]


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(
    command: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """A save that is not a folder ends before training, with one line."""
    (tmp_path / "file").touch()
    config_of(1, data_path=text_data, save=str(tmp_path / "file" / "ck"), checkpoint_factor=5)
    code, _, err = command("train", str(tmp_path / "tiny.yml"))
    assert code == 1
    assert "cannot be written: Not a directory" in err
    assert "Traceback" not in err

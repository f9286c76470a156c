"""File systems that fill up, cannot be written, or change under a save: a clear message, and nothing is lost."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neoxlite.checkpoint import save as saving
from neoxlite.checkpoint.folder import find, saved_iterations
from neoxlite.checkpoint.lock import LOCK, SaveLock
from neoxlite.checkpoint.manifest import Manifest
from neoxlite.checkpoint.owner import Owner
from neoxlite.errors import CheckpointError
from tests.cluster.need import need
from tests.neoxlite.checkpoint.made import check, save_numbers


def _limit_file_size(ranks: Any, files: Any) -> None:
    # Writing beyond it fails as on a full disk; Python ignores the signal that comes with it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def test_a_full_disk_keeps_the_checkpoint_before(world: Any, train: Any, copy: Path) -> None:
    """A save that cannot write ends the run with a message on every rank; the older one stays the latest."""
    with pytest.raises(AssertionError, match="the checkpoint could not be written"):
        train(2, save=str(copy), load=str(copy), checkpoint_factor=100, train_iters=12, override_lr_scheduler=True,
              at={1: _limit_file_size})  # fmt: skip
    assert find(copy) == copy / "global_step10"
    check(copy / "global_step10")
    assert saved_iterations(copy) == [5, 10]
    assert not list(copy.glob(".*"))  # the half that was written does not keep the disk full


_MS_RDONLY, _MS_REMOUNT, _CLONE_NEWNS, _MS_REC_PRIVATE = 1, 32, 0x20000, 0x44000


@pytest.fixture
def mounts() -> None:
    """Processes may mount a file system for themselves: root's may, not in every container."""
    words = ["unshare", "--mount", "true"]
    may = shutil.which("unshare") is not None and subprocess.run(words, capture_output=True).returncode == 0
    need([] if may else ["the right to mount"], "file system of its own")


def _own_file_system(root: Path, size_bytes: int) -> Callable[[int], None]:
    """Mount an empty file system at ``root`` for this process alone; return what mounts it again with other flags."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    where, options = str(root).encode(), f"size={size_bytes}".encode()
    call(libc.unshare(_CLONE_NEWNS))
    call(libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None))
    call(libc.mount(b"none", where, b"tmpfs", 0, options))
    return lambda flags: call(libc.mount(b"none", where, b"tmpfs", _MS_REMOUNT | flags, options))


def _fill_up(ranks: Any, root: Path) -> list[str]:
    """Save on a disk with less and less room; return the messages of the saves that could not be written."""
    page, size = 4096, 1 << 19
    _own_file_system(root, size)
    save_numbers(root, 5)
    told = []
    room = os.statvfs(root).f_bavail
    for left in range(room, -1, -1):
        (root / "others").write_bytes(bytes((room - left) * page))
        try:
            save_numbers(root, 10)
        except CheckpointError as error:
            told.append(f"{error.message} | {error.hint}")
        folder = find(root)
        assert folder is not None
        assert saved_iterations(root) == ([5, 10] if folder.name == "global_step10" else [5])
        check(root / "global_step5")
        check(folder)
        assert sorted(path.name for path in root.glob(".*")) == []
        if folder.name == "global_step10":
            saving._discard(folder)
            (root / "latest").write_text("global_step5")
    (root / "others").unlink()
    save_numbers(root, 10)
    check(root / "global_step10")
    return told


def test_a_disk_that_fills_up_at_any_page_of_a_save(mounts: None, world: Any, tmp_path: Path) -> None:
    """Room for every number of pages, from enough to none: each save is whole, or told and cleared away."""
    (told,) = world.run(1, _fill_up, tmp_path)
    assert len(told) > 4
    for line in told:
        assert line.startswith("the checkpoint could not be written: rank 0: ")
        assert "No space left on device | make room or raise the quota; the checkpoints before it are" in line


def _make_read_only(ranks: Any, root: Path) -> list[str]:
    """Return what is said of a folder that cannot be written any more, at the start of a run and in a save."""
    remount = _own_file_system(root, 1 << 20)
    save_numbers(root, 5)
    remount(_MS_RDONLY)
    told = []
    for act in (SaveLock(root).acquire, lambda: save_numbers(root, 10)):
        with pytest.raises(CheckpointError) as caught:
            act()
        told.append(f"{caught.value.message} | {caught.value.hint}")
    folder = find(root)
    assert folder is not None
    check(folder)
    return told


def test_a_file_system_that_is_read_only(mounts: None, world: Any, tmp_path: Path) -> None:
    """A run that saves there is refused at its start, a save is told why, and what is there can be loaded."""
    ((at_start, in_save),) = world.run(1, _make_read_only, tmp_path)
    assert at_start == f"save: {tmp_path} cannot be written: Read-only file system | give another folder in save"
    assert "Read-only file system | check the rights of the folder, and whether it is mounted" in in_save


def test_a_folder_that_is_renamed_while_it_is_saved_to(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two files of a save: it fails by the path that has gone, and the checkpoints are in the new place."""
    real = saving.write_tensors, saving.write_parts
    for after in range(6):  # the first thing that is done in the folder, four files of tensors, config.yml
        calls = iter(range(6))

        def moving(write: Any, path: Path, content: Any, after: int = after, calls: Any = calls) -> dict[str, int]:
            if after == 0:
                made.rename(made.with_name("renamed"))
            written: dict[str, int] = write(path, content)
            if next(calls) == after - 1:
                made.rename(made.with_name("renamed"))
            return written

        monkeypatch.setattr(saving, "write_tensors", functools.partial(moving, real[0]))
        monkeypatch.setattr(saving, "write_parts", functools.partial(moving, real[1]))
        with pytest.raises(CheckpointError, match=f"{made}.*: No such file or directory") as caught:
            save_numbers(made, 11)
        assert "was moved or removed" in (caught.value.hint or "")
        assert not made.exists()
        made.with_name("renamed").rename(made)
        assert find(made) == made / "global_step10"
        check(made / "global_step10")
    monkeypatch.undo()
    save_numbers(made, 11)
    assert saved_iterations(made) == [5, 10, 11]
    assert not list(made.glob(".*"))


def test_a_disk_that_changes_what_it_is_given(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit turned, or the end cut off, behind the writing of a file and before the end of the save: a load is told."""
    real = saving.write_tensors
    for iteration, change in ((11, lambda data: data[:-1] + bytes([data[-1] ^ 1])), (12, lambda data: data[:-8])):

        def changing(path: Path, tensors: Any, change: Any = change) -> dict[str, int]:
            written = real(path, tensors)
            path.write_bytes(change(path.read_bytes()))
            return written

        monkeypatch.setattr(saving, "write_tensors", changing)
        save_numbers(made, iteration)
        folder = made / f"global_step{iteration}"
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        damage = Manifest.read(folder).damage(folder)
        assert [line.split()[0] for line in damage] == names
        assert len(names) > 0


def test_a_run_that_has_lost_its_lock_does_not_save(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halted for longer than a lock lasts, a run goes on beside the one that took over: its save is refused, also if
    the lock is lost while it writes, and the other run's lock is neither renewed nor removed."""
    other = dataclasses.replace(Owner.this(), host="elsewhere")
    real = saving.write_tensors

    def losing(path: Path, tensors: Any) -> dict[str, int]:
        (made / LOCK).write_text(json.dumps({"owner": str(other), "since": "2026-01-02T03:04:05+09:00"}))
        return real(path, tensors)

    with SaveLock(made) as lock:
        lock.acquire()
        save_numbers(made, 11)
        monkeypatch.setattr(saving, "write_tensors", losing)
        for iteration in (12, 13):  # lost in the save, and before it
            with pytest.raises(CheckpointError, match=f"another run saves to {made}: process {other.pid} on elsewhere"):
                save_numbers(made, iteration)
    assert str(other) in (made / LOCK).read_text()
    assert saved_iterations(made) == [5, 10, 11]
    assert Manifest.read(made / "global_step11").damage(made / "global_step11") == []

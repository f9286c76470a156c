"""One run a save folder: a lock file that names its owner and is renewed while the owner lives. Imports no torch.

A lock of this host is judged by its process. One of another host by its renewal: the owner touches the file every
`RENEWED_EVERY_S`, so a lock that does not change for `EXPIRES_AFTER_S` is of a dead run and is taken over. Only changes
are looked for, never times compared: the clocks of two hosts and of a file server differ.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from neoxlite.checkpoint.owner import Owner
from neoxlite.errors import CheckpointError

LOCK = ".lock"
RENEWED_EVERY_S = 15.0
EXPIRES_AFTER_S = 60.0
_POLL_S = 1.0
_SEEN_POLL_S = 0.2


class SaveLock:
    """Holds the lock of ``root`` from `acquire` to `release`, or to the end of a ``with``; None needs no lock."""

    def __init__(self, root: Path | None):
        self._root = root
        self.owner = str(Owner.this())
        """This process, as the lock file names it."""
        self._end = threading.Event()
        self._held = False
        self._made: list[Path] = []

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            CheckpointError: another run has it, or the folder cannot be written.
        """
        if self._root is None:
            return
        try:
            self._made = [folder for folder in (self._root, *self._root.parents) if not folder.exists()]
            self._root.mkdir(parents=True, exist_ok=True)
            while not self._create(self._root / LOCK):
                self._take_over_or_refuse(self._root / LOCK)
        except OSError as error:
            raise CheckpointError(
                f"save: {self._root} cannot be written: {error.strerror}", hint="give another folder in save"
            ) from None
        self._held = True
        threading.Thread(target=self._renew, name="save-lock", daemon=True).start()

    def release(self) -> None:
        """Give the lock back, if it is still this run's; with it go folders made for it in which nothing was saved."""
        self._end.set()
        if self._held and self._root is not None:
            self._held = False
            with contextlib.suppress(OSError):
                if _read(self._root / LOCK)[0].get("owner") == self.owner:
                    (self._root / LOCK).unlink()
                    for folder in self._made:
                        folder.rmdir()  # raises, which is the end of it, where anything is in the folder

    def __enter__(self) -> SaveLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _create(self, path: Path) -> bool:
        """Create the lock file, which one process only can; return whether it was this one."""
        since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(json.dumps({"owner": self.owner, "since": since}) + "\n")
        return True

    def _take_over_or_refuse(self, path: Path) -> None:
        if path.exists() and not path.is_file():
            raise CheckpointError(
                f"save: {path} is not a file",
                hint="remove it: a run that saves keeps its lock there",
                exit_code=2,
            )
        content, seen = _read(path)
        alive = _is_alive(content)
        if alive is None:
            alive = _changes(path, seen)
        if alive:
            raise _taken(path, content)
        # Under a name of its own first: another process may have replaced the dead lock in the meantime.
        aside = path.with_name(f"{LOCK}.{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            if _read(aside)[0] != content:
                aside.rename(path)
            else:
                aside.unlink()

    def _renew(self) -> None:
        assert self._root is not None
        while not self._end.wait(RENEWED_EVERY_S):
            # A file server that is away for a while is not the end of a run.
            with contextlib.suppress(OSError):
                if _read(self._root / LOCK)[0].get("owner") == self.owner:
                    os.utime(self._root / LOCK)


def is_seen(root: Path, owner: str, within_s: float) -> bool:
    """Tell whether the lock of ``owner`` is seen in ``root`` from here; a network file system may be late with it."""
    end = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError):
            os.listdir(root)  # noqa: PTH208 - a client of NFS asks its server anew
            if _read(root / LOCK)[0].get("owner") == owner:
                return True
        if time.monotonic() > end:
            return False
        time.sleep(_SEEN_POLL_S)


def refuse_lost(root: Path) -> None:
    """Raise CheckpointError if another run has the lock of ``root`` by now, as after a halt longer than its expiry."""
    content, _ = _read(root / LOCK)
    if Owner.parse(str(content.get("owner", ""))) not in (None, Owner.this()):
        raise _taken(root / LOCK, content)


def _is_alive(content: dict[str, Any]) -> bool | None:
    owner = Owner.parse(str(content.get("owner", "")))
    return owner.is_alive if owner is not None else None


def _read(path: Path) -> tuple[dict[str, Any], Any]:
    """Return a lock's content, empty if there is none or it is damaged, and what changes when it is renewed."""
    try:
        # Opened, not only looked up: a network file system asks its server then.
        with path.open("rb") as file:
            data, state = file.read(4096), os.fstat(file.fileno())
    except FileNotFoundError:
        return {}, None
    try:
        content = json.loads(data)
    except ValueError:
        content = {}
    return content if isinstance(content, dict) else {}, (data, state.st_ino, state.st_mtime_ns)


def _changes(path: Path, seen: Any) -> bool:
    """Watch the lock of another host until it is renewed or has expired; a removed one has no owner any more."""
    end = time.monotonic() + EXPIRES_AFTER_S
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        _, now = _read(path)
        if now != seen:
            return now is not None
    return False


def _taken(path: Path, content: dict[str, Any]) -> CheckpointError:
    owner = Owner.parse(str(content.get("owner", "")))
    who = f"process {owner.pid} on {owner.host}" if owner is not None else "an unknown process"
    return CheckpointError(
        f"save: another run saves to {path.parent}: {who}, since {content.get('since', 'an unknown time')}",
        hint="end that run, or give this one another folder in save; two runs would overwrite each other's checkpoints",
        exit_code=2,
    )

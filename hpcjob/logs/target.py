"""What the words after ``hpcjob tail`` mean: files, a directory, standard input, or a job by id or name."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.errors import InputError, UnknownJobError
from hpcjob.home import expanded
from hpcjob.logs.sources import JobFiles, Provider, hosts_of, listed
from hpcjob.logs.waiting import told_if_slow
from hpcjob.states import State
from neoxlite.common.near import near
from neoxlite.common.paths import exists, is_dir, what_else
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.logs.ending import Ending
    from hpcjob.logs.succession import Run
    from hpcjob.tracking.status import Status

STANDARD_INPUT = "-"
_NAME_MAX = 255  # bytes: limits.h of Linux
_FILE_SUFFIXES = (".log", ".out", ".err", ".txt")


class Target(msgspec.Struct, frozen=True):
    """What to read.

    Attributes:
        paths: files, if files were named.
        directory: the job's or the named directory, if one was named.
        ended: whether nothing will be written any more; asked while following.
        status: asks for the job's state by its scheduler, None if there is no such job.
        waited_for: why the job was last seen waiting.
        after: what the job comes after, as ``afterok:123``.
        walltime_s: the job's limit.
        run: goes from a job to the one that goes on with its run.
    """

    paths: tuple[Path, ...] = ()
    directory: Path | None = None
    job_id: str | None = None
    ended: Callable[[], bool] = lambda: False
    status: Callable[[], Status | None] = lambda: None
    waited_for: Callable[[], str | None] = lambda: None
    after: tuple[str, ...] = ()
    walltime_s: float | None = None
    run: Run | None = None

    @property
    def metrics(self) -> Path | None:
        """The trainer's file of exact values."""
        return None if self.directory is None else self.directory / "metrics.jsonl"

    def provider(self, view: str, ranks: Collection[int] | None, hosts: Collection[str] | None = None) -> Provider:
        """Return what names the files of a view (``lines``, ``loss``, ``nccl``, ``errors``, ``digest``).

        Args:
            ranks: leave out files of other ranks; hosts: of other hosts.
        """
        if self.paths or self.directory is None:
            return listed(self.paths)
        if ranks is None and hosts is None:
            choose = {"lines": JobFiles.main, "loss": JobFiles.main, "digest": JobFiles.digest}.get(view, JobFiles.all)
            return lambda: choose(self._files())
        nccl = view in ("nccl", "errors", "digest")
        return lambda: self._files().of(ranks, hosts, nccl=nccl)

    def _files(self) -> JobFiles:
        if self.run is not None:
            return JobFiles(self.run.directory, self.run.job_id)
        return JobFiles(self.directory or Path(), self.job_id)

    def ending(self, *, ask: bool = False) -> Ending:
        """Return how the job ended, by the files of its folder; with ``ask`` by its scheduler too, if need be."""
        from hpcjob.logs.ending import read_ending

        ending = read_ending(self.directory, self.job_id)
        if not ask or ending.is_told_by_files:
            return ending
        status = self.status()
        waited_for = self.waited_for() if status is not None and status.state is State.CANCELLED else None
        return msgspec.structs.replace(ending, status=status, after=self.after, waited_for=waited_for)

    def no_log(self, status: Status | None, whose: str = "") -> str:
        """Say that there is no log, and what is known of the job."""
        where = self.directory or ", ".join(map(str, self.paths))
        return f"no log{whose} yet in {where}{self.known_of(status)}"

    @staticmethod
    def known_of(status: Status | None) -> str:
        """Return what is known of a job whose log tells nothing, to be put behind that; empty where one is to come."""
        known = None if status is None else status.without_log
        return f"; the job is {known}" if known else ""

    def ranks(self) -> list[int]:
        """Return the ranks that have a log of their own."""
        if self.directory is None or self.paths:
            return []
        return sorted({one.rank for one in JobFiles(self.directory, self.job_id).all() if one.rank is not None})

    def hosts(self) -> list[str]:
        """Return the job's hosts, from its hostfile."""
        names = [] if self.directory is None else list(hosts_of(self.directory))
        return [*names, *{name.partition(".")[0] for name in names if not name[0].isdigit()}]


def resolve(words: Sequence[str], *, may_come: bool = False) -> Target:
    """Return what is meant; a path that exists goes before a job of that name.

    Args:
        may_come: a file may not exist yet, if its folder does and its name is one of a file.

    Raises:
        UnknownJobError: neither a path nor a job; the hint names what is near.
        InputError: several things that cannot be read together.
    """
    paths = [path for word in words for path in _expand(word)]
    if len(paths) > 1:
        for path in paths:
            if not exists(path) and not (may_come and _is_to_come(path)):
                raise InputError(
                    f"{path}: no file", hint="several at once can only be files and directories; name one job"
                )
        return Target(paths=tuple(file for path in paths for file in _files(path)))
    if words and is_dir(paths[0]):
        return Target(directory=paths[0])
    if words and exists(paths[0]):
        return Target(paths=(paths[0],))
    if words and may_come and _is_to_come(paths[0]):
        return Target(paths=(paths[0],))
    if words and (other := what_else(paths[0])):
        raise InputError(f"{paths[0]}: {other}", hint="ls -l shows where it leads")
    return _job(words[0] if words else "latest")


def _is_to_come(path: Path) -> bool:
    """Whether what is not there can only be meant as a file: a job's name has neither a folder nor such an end."""
    named = path.parent != Path() or path.suffix in _FILE_SUFFIXES
    return named and len(os.fsencode(path.name)) <= _NAME_MAX and is_dir(path.parent)


def _expand(word: str) -> list[Path]:
    """Return the files of a pattern that the shell did not expand, or the path itself."""
    path = expanded(word)
    if exists(path) or not glob.has_magic(word):
        return [path]
    found = sorted(glob.glob(os.path.expanduser(word), recursive=True))  # noqa: PTH111, PTH207 - absolute or relative
    if not found:
        raise InputError(
            f"{word}: no file of that pattern", hint="check the folder; quote the pattern or let the shell expand it"
        )
    return [Path(name) for name in found]


def _files(path: Path) -> list[Path]:
    return [source.path for source in JobFiles(path).all()] if path.is_dir() else [path]


def _job(name: str) -> Target:
    from hpcjob.logs.succession import Run
    from hpcjob.tracking import find_job, job_ended, refresh
    from hpcjob.tracking.index import read_index
    from hpcjob.tracking.waits import Waits

    asked = "the scheduler has not answered yet; waiting"
    try:
        with told_if_slow(asked):
            record = find_job(name)
    except UnknownJobError as error:
        alike = _files_like(name)
        files = f"files with a name like it: {', '.join(alike)}" if alike else None
        hint = "; ".join(filter(None, (files, error.hint)))
        raise UnknownJobError(f"{error.message}, and no file {name!r} is here", hint=hint or None) from error
    waits = Waits(lambda text: tell(text, "hpcjob tail"))
    run = Run(record, waits)

    def ended() -> bool:
        with told_if_slow(asked):
            return job_ended(record, waits) if record.log is not None else run.ended()

    def status() -> Status:
        with told_if_slow(asked):
            return refresh([record], read_index())[record]

    def waited_for() -> str | None:
        return read_index().waited_for(record)

    return Target(
        paths=() if record.log is None else (Path(record.log),),
        directory=record.jobdir,
        job_id=record.job_id,
        ended=ended,
        status=status,
        waited_for=waited_for,
        after=tuple(record.after),
        walltime_s=record.walltime_s,
        run=run,
    )


def _files_like(name: str) -> list[str]:
    path = expanded(name)
    try:
        found = near(path.name, os.listdir(path.parent))  # noqa: PTH208
    except OSError:
        return []
    return [str(path.with_name(entry)) for entry in found]

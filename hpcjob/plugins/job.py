"""submitit's Job for a submitted function: state from the scheduler, result from the pickle, from any process."""

from __future__ import annotations

import errno
import functools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from submitit.core import core, utils

from hpcjob.errors import SchedulerError
from hpcjob.plugins.records import find_record, read_record
from hpcjob.schedulers.registry import scheduler_of
from hpcjob.states import State
from hpcjob.tracking.exit_record import read_exit_record
from hpcjob.tracking.index import Index, append, read_index
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Status
from hpcjob.tracking.submitit_jobs import WatchedJob, Watcher
from hpcjob.tracking.watch import or_cancelled

if TYPE_CHECKING:
    from hpcjob.profile import SchedulerName

# How long the pickle of a job that has ended may take to be seen: it was written before the exit record.
_SETTLE_S = 1.0
_LATE_S = 15.0  # where that record is not there yet, or the folder's cache cannot be emptied
_CLOCKS_S = 60.0  # by which the clocks of nodes may differ
_LINES = 40


@functools.cache
def watcher_of(scheduler: SchedulerName, server: str, history: bool) -> Watcher:
    """Return the one watcher of all jobs of a cluster: one question for any number of them."""
    return Watcher(scheduler_of(scheduler), history=history)


@functools.cache
def _index() -> Index:
    """Return the index of jobs, for the orders to end that it holds; `Index.was_cancelled` keeps it fresh."""
    return read_index()


class FunctionJob(WatchedJob[core.R]):
    """A function that was submitted.

    Args:
        folder: the executor's folder.
        job_id: the scheduler's id, ``ID_7`` of an element of an array.
        tasks: ranks, each with a result of its own.
        record: of the submission; default: the one that the folder leads to.

    Raises:
        UnknownJobError: the folder has no such job.
    """

    _cancel_at_deletion = False  # submitit looks for it in what could not be made, too

    def __init__(
        self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,), record: Record | None = None
    ) -> None:
        self.record = record or find_record(utils.JobPaths(folder, job_id=job_id).submission_file, job_id)
        self.ref = self.record.ref
        self.watcher = self._watcher()
        super().__init__(folder, job_id, tasks[:1])  # it would make the jobs of several tasks without the record
        self._tasks = tuple(tasks)
        if len(tasks) > 1:
            self._sub_jobs = [type(self)(folder, job_id, (rank,), self.record) for rank in tasks]
            self._paths = utils.JobPaths(folder, job_id=job_id)

    def _watcher(self) -> Watcher:
        return watcher_of(cast("SchedulerName", self.record.scheduler), self.record.server, self.record.history)

    def take_place(self, pickle: Path, began: float) -> None:
        """Give the submission's files their names in the folder; the job itself may have come before us.

        Args:
            pickle: where the function waits.
            began: time of the submission: results that are older belong to another job of this id.
        """
        self.paths.folder.mkdir(parents=True, exist_ok=True)
        results = [job.paths.result_pickle for job in self._sub_jobs or [self]]
        for path in (*results, next_path(self.paths, self.job_id)):
            if path.exists() and path.stat().st_mtime < began - _CLOCKS_S:
                path.unlink()
        take_pickle(pickle, self.paths)
        link, script = self.paths.submission_file, Path(self.record.directory) / "script.sh"
        if self.record.element_of is not None:
            script = script.parent.parent / script.name
        if not (link.is_symlink() and link.resolve() == script.resolve()):
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(script, link.parent))

    def status(self, mode: str = "standard") -> Status:
        """Return state, exit code and reason; of a job that was submitted anew, those of its latest submission."""
        status = super().status(mode)
        while status.state.ended and self._follow():
            status = super().status(mode)
        return or_cancelled(self.record, status, _index())

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """Return the status as strings under sacct's names."""
        status = self.status(mode)
        code = "" if status.exit_code is None else str(status.exit_code)
        return {"JobID": self.ref.id, "State": status.state.value, "ExitCode": code, "Reason": status.reason or ""}

    def _follow(self) -> bool:
        """Go on to the job that took over when this one ran out of time; return whether there is one."""
        record = read_record(next_path(self.paths, self.ref.id))
        if record is None:
            return False
        self.record, self.ref = record, record.ref
        self._register_in_watcher()
        return True

    def done(self, force_check: bool = False) -> bool:
        """Return whether the result of each task is there, or the job has ended."""
        if self._sub_jobs:
            return all(job.done(force_check) for job in self._sub_jobs)
        _empty_cache(self.paths.folder)
        return self.paths.result_pickle.exists() or super().done(force_check)

    def cancel(self, check: bool = True) -> None:
        """End the job, in its latest submission; of a local one all processes are gone on return.

        Raises:
            SchedulerError: it could not be done, unless ``check`` is false.
        """
        while self._follow():
            pass
        try:
            self.watcher.scheduler.cancel([self.ref])
        except SchedulerError:
            if check:
                raise
            return
        _index().cancelled.add(self.record.key)
        try:
            append(self.record.cancel())
        except OSError:
            return  # a note for later, and for other processes

    def _interrupt(self, timeout: bool = False) -> None:
        """Tell the job that its walltime is near, as its script does in time (for tests)."""
        while self._follow():
            pass
        (self.ref.jobdir / "stop").write_text("walltime\n", encoding="utf-8")

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        """Return the pickle: ("success", result) or ("error", trace).

        Raises:
            UncompletedJobError: the job ended without leaving one.
        """
        assert not self._sub_jobs, "each task has a result"
        fresh = _empty_cache(self.paths.folder)
        status = self.status("cache")
        known = status.state is not State.COMPLETED or read_exit_record(self.ref.jobdir, self.ref.id) is not None
        deadline = time.monotonic() + (_SETTLE_S if fresh and known else _LATE_S)
        while not self.paths.result_pickle.exists():
            if time.monotonic() > deadline:
                raise utils.UncompletedJobError(self._without_result(status))
            time.sleep(0.1)
            _empty_cache(self.paths.folder)
        outcome: tuple[str, Any] = utils.pickle_load(self.paths.result_pickle)
        return outcome

    def _without_result(self, status: Status) -> str:
        code = "" if status.exit_code is None else f", exit code {status.exit_code}"
        reason = f" ({status.reason})" if status.reason else ""
        lines = [f"Job {self.job_id} (task: {self.task_id}) ended as {status.state}{code}{reason} and left no result"]
        for path in (self.paths.stderr, self.paths.stdout, self._script_log()):
            if last := _last_lines(path):
                return "\n".join([*lines, f"The end of {path}:", "-" * 40, last])
        return "\n".join([*lines, f"It left no log: see {self.ref.jobdir}"])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "watcher"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.watcher = self._watcher()
        self._register_in_watcher()


class HpcjobJob(FunctionJob[core.R]):
    """A function submitted with ``cluster="hpcjob"``."""


def take_pickle(pickle: Path, paths: utils.JobPaths) -> None:
    """Give a function's pickle the name that goes with its job's id; somebody may have done so already."""
    try:
        pickle.replace(paths.submitted_pickle)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise


def next_path(paths: utils.JobPaths, job_id: str) -> Path:
    """Return the file that says which job took over from one that ran out of time."""
    folder: Path = paths.folder
    return folder / f"{job_id}_next.json"


def _empty_cache(folder: Path) -> bool:
    """Have a network file system look at the folder again; return whether it was asked."""
    try:
        folder.chmod(folder.stat().st_mode)
    except OSError:
        return False
    return True


def _last_lines(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LINES:])

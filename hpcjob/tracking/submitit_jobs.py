"""submitit's view of our jobs: its Job and InfoWatcher, for jobs that submitit did not submit and that leave no pickle.

What differs from submitit's own (1.5): the state comes from the queue, the history and the exit record, in hpcjob's
words; every word that is no end counts as alive; a result is the job's exit code, at once; a job of this machine can be
watched and cancelled from any process; broken UTF-8 in a log is replaced.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcjob.errors import SchedulerError
from hpcjob.home import expanded
from hpcjob.schedulers.base import JobRef, Scheduler
from hpcjob.schedulers.local import LocalScheduler
from hpcjob.schedulers.slurm import SlurmScheduler
from hpcjob.states import State
from hpcjob.tracking.exit_record import read_exit_record
from hpcjob.tracking.status import Status, ask


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep submitit's import from having its log printed on stdout, between the lines of a JSON document.

    The variable goes again: jobs that submitit itself starts from this process inherit it, and would log nothing.
    """
    name = "SUBMITIT_LOG_LEVEL"
    given = os.environ.get(name)
    os.environ.setdefault(name, "NOCONFIG")
    yield
    if given is None:
        del os.environ[name]


with _without_log():
    from submitit.core import core, utils


class Watcher(core.InfoWatcher):
    """Asks one scheduler about all registered jobs at once.

    Args:
        scheduler: whom to ask.
        history: whether finished jobs can be queried.
    """

    def __init__(self, scheduler: Scheduler, *, history: bool = True) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.history = history
        self._refs: dict[str, JobRef] = {}
        self._statuses: dict[str, Status] = {}
        self._looked_at = float("-inf")

    def register(self, ref: JobRef) -> None:
        """Watch a job; the next question asks for it too."""
        if self._refs.get(ref.id) != ref:
            self._refs[ref.id] = ref
            self._finished.discard(ref.id)
            self.register_job(ref.id)

    def update_if_long_enough(self, mode: str) -> None:
        """Ask when forced, and else at 0, 2, 4, 8 ... s after a job came, at last every 30 s (`Scheduler.poll_s`)."""
        if mode == "cache":
            return
        shortest_s, longest_s = self.scheduler.poll_s
        now = time.time()
        delay_s = 0.0 if mode == "force" else min(longest_s, max(shortest_s, (now - self._start_time) / 2))
        waited_s = now - self._last_status_check
        if waited_s >= delay_s or (min(waited_s, now - self._looked_at) >= shortest_s and self._has_news()):
            self.update()

    def _has_news(self) -> bool:
        """Whether a job that is not known to have ended has left its exit record; looks at every job's folder."""
        self._looked_at = time.time()
        live = (ref for job_id, ref in self._refs.items() if job_id not in self._finished)
        return any(read_exit_record(ref.jobdir, ref.id) is not None for ref in live)

    def update(self) -> None:
        """Ask about every job that has not ended, with one call."""
        refs = [ref for job_id, ref in self._refs.items() if job_id not in self._finished]
        if refs:
            self._num_calls += 1
            self._statuses.update(ask(self.scheduler, refs, history=self.history))
            self._finished.update(ref.id for ref in refs if self._statuses[ref.id].state.ended)
        self._last_status_check = time.time()

    def status(self, job_id: str, mode: str = "standard") -> Status:
        """Return the status of a registered job; ``mode`` as in `get_info`."""
        self.update_if_long_enough(mode)
        return self._statuses.get(job_id, Status(State.UNKNOWN, reason="not queried yet"))

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """Return the status as strings under sacct's names."""
        status = self.status(job_id, mode)
        code = "" if status.exit_code is None else str(status.exit_code)
        return {"JobID": job_id, "State": status.state.value, "ExitCode": code, "Reason": status.reason or ""}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return the state in hpcjob's words."""
        return self.status(job_id, mode).state.value

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether the job has ended; what is not known to be an end is none."""
        return self.status(job_id, mode).state.ended


class _Paths(utils.JobPaths):
    """Expands ``%j`` and ``%t`` in names of files only: a folder may be called ``100%a``."""

    @property
    def folder(self) -> Path:
        return self._folder

    def _format_id(self, path: Path | str) -> Path:
        path = Path(path)
        return path.with_name(super()._format_id(path.name).name)


class WatchedJob(core.Job[core.R]):
    """A job behind a `Watcher`; what its result is, is said by the classes below.

    Attributes:
        watcher: who asks about it. ref: the job as its scheduler is asked about it.
    """

    watcher: Watcher
    ref: JobRef

    def _register_in_watcher(self) -> None:
        self.watcher.register(self.ref)

    def status(self, mode: str = "standard") -> Status:
        """Return state, exit code and reason; ``mode`` as in submitit: standard, force or cache."""
        return self.watcher.status(self.ref.id, mode)

    @property
    def state(self) -> str:
        """The state in hpcjob's words."""
        return self.status().state.value

    def done(self, force_check: bool = False) -> bool:
        """Return whether the job has ended. An exit record alone is no end: the job may have been requeued."""
        return self.status("force" if force_check else "standard").state.ended

    def cancel(self, check: bool = True) -> None:
        """End the job; of a local one all processes are gone on return.

        Raises:
            SchedulerError: it could not be done, unless ``check`` is false.
        """
        with contextlib.nullcontext() if check else contextlib.suppress(SchedulerError):
            self.watcher.scheduler.cancel([self.ref])

    def _get_logs_string(self, name: str) -> str | None:
        """Return the log of the rank, else (``stdout``) the script's own; None while there is none."""
        paths = {"stdout": [self.paths.stdout, self._script_log()], "stderr": [self.paths.stderr]}
        for path in paths[name]:
            with contextlib.suppress(FileNotFoundError):
                return path.read_text(encoding="utf-8", errors="replace")
        return None

    def _script_log(self) -> Path:
        return self.ref.jobdir / f"{self.ref.id}_job.out"


class TrackedJob(WatchedJob[int]):
    """A submitted job, known by its job directory and id; one task per rank whose log is wanted.

    Args:
        folder: the job directory.
        job_id: the scheduler's id.
        tasks: ranks.
        watcher: who asks about it; default: the one that all jobs of the class share.
        cluster: which of several Slurm clusters, if not the default.
        ref: instead of folder, id and cluster.

    Attributes:
        ref: the job as its scheduler is asked about it.
    """

    def __init__(
        self,
        folder: Path | str,
        job_id: str,
        tasks: Sequence[int] = (0,),
        watcher: Watcher | None = None,
        cluster: str | None = None,
        ref: JobRef | None = None,
    ) -> None:
        # Before the base class, which registers the job and makes one of this class for each of several tasks.
        self.ref = ref or JobRef(job_id, expanded(folder).absolute(), cluster)
        if watcher is not None:
            self.watcher = watcher
        super().__init__(folder, job_id, tasks)
        self._paths = _Paths(folder, job_id=job_id, task_id=self.task_id)
        for job in self._sub_jobs:
            job.watcher = self.watcher

    @classmethod
    def of(cls, ref: JobRef, watcher: Watcher) -> TrackedJob:
        """Return the job, the array or the element that ``ref`` means, asked about by ``watcher``."""
        return cls(ref.jobdir, ref.id, watcher=watcher, cluster=ref.cluster, ref=ref)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        """Return ("success", exit code): a code is a result, also one that says failure; see `exception`.

        Raises:
            UncompletedJobError: the job ended without telling a code.
        """
        record = read_exit_record(self.paths.folder, self.job_id)
        code = record.code if record is not None else self.status("cache").exit_code
        if code is None:
            state = self.state
            raise utils.UncompletedJobError(f"job {self.job_id} ended as {state} and left no exit code")
        return "success", code

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """Wait for the end; return None for exit code 0, else an error with the code and where the logs are."""
        self.wait()
        try:
            _, code = self._get_outcome_and_result()
        except utils.UncompletedJobError as error:
            return error
        if code == 0:
            return None
        return utils.FailedJobError(f"job {self.job_id} ended with exit code {code}; see {self.paths.stdout}")


class SlurmJob(TrackedJob):
    """A job of the default Slurm cluster."""

    watcher = Watcher(SlurmScheduler())


class LocalJob(TrackedJob):
    """A job of this machine."""

    watcher = Watcher(LocalScheduler(), history=False)

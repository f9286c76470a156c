"""From a scheduler's name to the one that speaks to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcjob.errors import InputError, SchedulerError
from hpcjob.schedulers.base import Answer, JobRef, Report, Scheduler, Submission, Submitted
from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile, SchedulerName

_TITLES = {"pbs": "PBS Professional", "gridengine": "Grid Engine", "pjm": "Fujitsu TCS (PJM)"}
_SUBMIT = {"pbs": "qsub", "gridengine": "qsub", "pjm": "pjsub"}
_CANCEL = {"pbs": "qdel", "gridengine": "qdel", "pjm": "pjdel"}


def get_scheduler(profile: ClusterProfile) -> Scheduler:
    """Return the scheduler of ``profile``."""
    return scheduler_of(profile.scheduler.type)


def scheduler_of(type_: SchedulerName) -> Scheduler:
    """Return the scheduler of that type; its module is imported here."""
    if type_ == "slurm":
        from hpcjob.schedulers.slurm import SlurmScheduler

        return SlurmScheduler()
    if type_ == "local":
        from hpcjob.schedulers.local import LocalScheduler

        return LocalScheduler()
    return ByHandScheduler(type_)


class ByHandScheduler(Scheduler):
    """A scheduler whose scripts are rendered but whose commands are the user's to type; exit records tell the rest."""

    def __init__(self, type_: SchedulerName) -> None:
        self.type = type_

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """The line to type; Grid Engine sites that refuse the group inside a script take it here."""
        plan = submission.plan
        group = plan.account if plan.profile.scheduler.account == "-g-cli" else None
        return _SUBMIT[self.type], *(("-g", group) if group else ()), str(submission.script)

    def check(self, submission: Submission) -> None:
        """Refuse, and say how to go on by hand."""
        plan = submission.plan
        typed = " ".join((*self.command_line(submission)[:-1], "job.sh"))
        raise InputError(
            f"{plan.profile.name}: hpcjob renders scripts for {_TITLES[self.type]} but does not submit them yet",
            hint=f"`hpcjob render -o job.sh`, then `{typed}`, then `hpcjob attach ID --profile {plan.profile.name}`",
        )

    def submit(self, submission: Submission) -> Submitted:
        """Refuse, as `check` does."""
        self.check(submission)
        raise NotImplementedError

    def lookup(self, submission: Submission) -> Submitted | None:
        """Nothing was submitted."""
        return None

    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """Nobody is asked; the exit record decides."""
        return Answer(problem=f"hpcjob does not query {_TITLES[self.type]} yet") if jobs else Answer()

    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """Refuse, with the line to type."""
        ids = " ".join(job.id for job in jobs)
        raise SchedulerError(
            f"hpcjob does not cancel jobs of {_TITLES[self.type]} yet", hint=f"{_CANCEL[self.type]} {ids}"
        )

    def adopt(self, job: JobRef) -> Report | None:
        """Take the user's word for it."""
        return Report(State.UNKNOWN)

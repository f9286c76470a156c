"""What every scheduler does for us.

The life of a job: `Scheduler.submit` -> id -> `Scheduler.queue`, then `Scheduler.history` for what the queue no longer
holds -> `Scheduler.cancel`. `command_scheduler` has what all schedulers that are driven by commands do alike.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.arrays import numbered
from hpcjob.errors import InputError, SchedulerError
from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.plan import Plan


@dataclass(frozen=True)
class JobRef:
    """A job as its scheduler is asked about it.

    Attributes:
        id: the scheduler's id.
        jobdir: its job directory.
        cluster: which of several clusters behind one command, if not the default; of a local job its host.
        spec: of an array, the indices of its elements.
        array: of an element, the id of its array; index: its index; task: the scheduler's number of it.
    """

    id: str
    jobdir: Path
    cluster: str | None = None
    spec: str | None = None
    array: str | None = None
    index: int = 0
    task: int = 0


def element_of(array: JobRef, index: int, task: int) -> JobRef:
    """Return one element of an array; it has a folder of its own in the array's."""
    return JobRef(
        f"{array.id}_{index}", array.jobdir / str(index), array.cluster, array=array.id, index=index, task=task
    )


def tag_of(jobdir: Path) -> str:
    """Return the tag of the submission whose job directory that is: its name is unique."""
    return f"hpcjob-{jobdir.name}"


@dataclass(frozen=True)
class Mark:
    """By what a job is found if the answer to its submission is lost; all of it is that submission's alone.

    Attributes:
        script: absolute path.
        jobdir: the job directory.
        tag: what its name, comment or environment holds.
    """

    script: Path
    jobdir: Path
    tag: str


@dataclass(frozen=True)
class Submission(Mark):
    """A script ready to be submitted.

    Attributes:
        submit_dir: folder to submit from.
        plan: what the script was made from.
        first_of_chain: whether jobs will be submitted that come after this one.
    """

    submit_dir: Path
    plan: Plan
    first_of_chain: bool = False


@dataclass(frozen=True)
class Submitted:
    """What a submission gave: the job's id, and the server it went to (empty: the default one)."""

    id: str
    server: str = ""


@dataclass(frozen=True)
class Report:
    """What a scheduler says of one job.

    Attributes:
        exit_code: of the job; 128 + n where signal n ended it; None where the scheduler does not say.
        reason: the scheduler's own word for why.
        name: the job's name there.
        id: the job's full id, where it was asked for by a shorter one.
        unseen: the scheduler saw no end, it gave the job up: an exit record knows better.
    """

    state: State
    exit_code: int | None = None
    reason: str | None = None
    name: str | None = None
    id: str | None = None
    unseen: bool = False


@dataclass(frozen=True)
class Answer:
    """What a query gave.

    Attributes:
        reports: id -> report, of the jobs that it named.
        problem: why the answer is not whole; absence then says nothing. None: a job that is not in ``reports`` was
            not there.
    """

    reports: dict[str, Report] = field(default_factory=dict)
    problem: str | None = None

    def joined(self, other: Answer) -> Answer:
        """Return both answers as one."""
        return Answer({**self.reports, **other.reports}, self.problem or other.problem)


@dataclass(frozen=True)
class ShellRequest:
    """A shell on compute nodes, as `Scheduler.shell_command` asks for it.

    Attributes:
        options: what a job would ask by directives, each as words: ``("-l", "walltime=01:00:00")``.
        shell: absolute path of the program that is the shell.
        command: the profile's own command in the place of the usual one; empty: the usual one.
        group: the account, where it is taken on the command line only.
    """

    options: tuple[tuple[str, ...], ...]
    shell: Path
    command: tuple[str, ...] = ()
    group: str | None = None

    def without(self, *names: str) -> list[str]:
        """Return the words of all options but those that begin with one of ``names`` (``--output``: ``--output=x``)."""
        return [word for words in self.options if words[0].partition("=")[0] not in names for word in words]


def require_plain(path: Path, option: str) -> None:
    """Refuse a path that ``option`` would not take as one. Raises InputError."""
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", str(path)):
        raise InputError(
            f"{path}: {option} does not accept a path with other characters than letters, digits and _ . + -",
            hint="start from a folder with a plain name",
        )


class UnclearSubmitError(SchedulerError):
    """The scheduler did not say whether it took the job: look it up, never submit again."""


class Scheduler(abc.ABC):
    """One kind of batch system. Holds no state: every answer is asked for.

    Attributes:
        type: its name in profiles.
        poll_s: shortest and longest pause between two queries.
        restartable: raw directive of a job that may be started anew under its id; None: none is needed, or it cannot.
        restart_code: exit code with which a script asks for that, if there is one.
    """

    type: str
    poll_s: tuple[float, float] = (2.0, 30.0)
    restartable: str | None = None
    restart_code: int | None = None

    def own_id(self, job: JobRef) -> str:
        """Return how the scheduler itself calls a job, an array, or an array's element."""
        return job.id if job.array is None else f"{job.array}_{job.task}"

    def elements(self, job: JobRef) -> list[JobRef]:
        """Return the elements of an array; of a job that is none, the job itself."""
        if job.spec is None:
            return [job]
        return [element_of(job, index, task) for index, task in numbered(job.spec, self.type)]

    def check(self, submission: Submission) -> None:  # noqa: B027 - most have nothing to object
        """Refuse what cannot be submitted from here. Raises InputError."""

    @abc.abstractmethod
    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """Return the command that submits, to be shown."""

    @abc.abstractmethod
    def submit(self, submission: Submission) -> Submitted:
        """Submit once.

        Raises:
            UnclearSubmitError: whether it was taken is not known.
            SchedulerError: it was refused; the message has the scheduler's words.
        """

    @abc.abstractmethod
    def lookup(self, mark: Mark) -> Submitted | None:
        """Return the job of the marked submission if the scheduler has it, None if it surely has not.

        Raises:
            SchedulerError: the scheduler did not answer.
        """

    @abc.abstractmethod
    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """Ask for the jobs that wait, run or ended just now. Never raises: what failed is the answer's ``problem``."""

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        """Ask for jobs that ended longer ago. Never raises."""
        return Answer(problem=f"{self.type} keeps no history here") if jobs else Answer()

    def expected_start(self, job: JobRef) -> str | None:
        """Ask when a job that waits will start; None where it is not told. Never raises."""
        return None

    @abc.abstractmethod
    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """End the jobs; return id -> what was done, in a few words.

        Raises:
            SchedulerError: the scheduler refused or did not answer.
        """

    def hold(self, jobs: Sequence[JobRef]) -> None:
        """Keep jobs that wait from starting.

        Raises:
            SchedulerError: the scheduler has nothing of the kind, refused or did not answer.
        """
        raise SchedulerError(f"{self.type} cannot hold a job", hint="cancel it, and submit it later")

    def release(self, jobs: Sequence[JobRef]) -> None:
        """Let held jobs start again. Raises SchedulerError, as `hold` does."""
        raise SchedulerError(f"{self.type} cannot hold a job", hint="there is nothing to release")

    def restart(self, job: JobRef) -> bool:
        """Have a running job started anew under its id; return whether the scheduler lets its owner ask for that.

        Raises:
            SchedulerError: it refused or did not answer.
        """
        return False

    def shell_command(self, request: ShellRequest) -> list[str]:
        """Return the command that gives a shell on compute nodes, in this terminal.

        Raises:
            InputError: the path of the shell cannot be handed to it.
        """
        raise InputError(f"{self.type} gives no shells", hint="submit a job: hpcjob submit")

    def server(self) -> str:
        """Return which server the jobs of here belong to; empty: the default one."""
        return ""

    def adopt(self, job: JobRef) -> Report | None:
        """Begin to track a job that was submitted by hand; None if the scheduler does not know it.

        Raises:
            SchedulerError: the scheduler did not answer.
        """
        answer = self.queue([job])
        if job.id not in answer.reports:
            past = self.history([job])
            answer = Answer({**past.reports, **answer.reports}, answer.problem)
        if job.id not in answer.reports and answer.problem:
            raise SchedulerError(answer.problem, hint="try again when the scheduler answers")
        return answer.reports.get(job.id)

"""What every scheduler does for us, and the small hooks by which one differs from another.

The life of a job: `Scheduler.submit` -> id -> `Scheduler.queue`, then `Scheduler.history` for what the queue no longer
holds -> `Scheduler.cancel`. A scheduler that is driven by commands fills in the hooks of `CommandScheduler`, each a
pure function from arguments to an argv or from a command's words to values, and is done.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.errors import SchedulerError
from hpcjob.schedulers import commands
from hpcjob.states import State

if TYPE_CHECKING:
    from hpcjob.plan import Plan

_Parser = Callable[[str], "Answer"]
_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one argument; room is left for what stands around the ids


@dataclass(frozen=True)
class JobRef:
    """A job as its scheduler is asked about it.

    Attributes:
        id: the scheduler's id.
        jobdir: its job directory.
        cluster: which of several clusters behind one command, if not the default.
    """

    id: str
    jobdir: Path
    cluster: str | None = None


@dataclass(frozen=True)
class Submission:
    """A script ready to be submitted.

    Attributes:
        script: absolute path; unique to this submission, as its job directory is.
        jobdir: the job directory.
        submit_dir: folder to submit from.
        tag: unique mark by which the job is found if the answer to its submission is lost.
        plan: what the script was made from.
    """

    script: Path
    jobdir: Path
    submit_dir: Path
    tag: str
    plan: Plan


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
    """

    state: State
    exit_code: int | None = None
    reason: str | None = None
    name: str | None = None


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


class UnclearSubmitError(SchedulerError):
    """The scheduler did not say whether it took the job: look it up, never submit again."""


class Scheduler(abc.ABC):
    """One kind of batch system. Holds no state: every answer is asked for.

    Attributes:
        type: its name in profiles.
        poll_s: shortest and longest pause between two queries.
    """

    type: str
    poll_s: tuple[float, float] = (2.0, 30.0)

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
    def lookup(self, submission: Submission) -> Submitted | None:
        """Return the job of ``submission`` if the scheduler has it, None if it surely has not.

        Raises:
            SchedulerError: the scheduler did not answer.
        """

    @abc.abstractmethod
    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """Ask for the jobs that wait, run or ended just now. Never raises: what failed is the answer's ``problem``."""

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        """Ask for jobs that ended longer ago. Never raises."""
        return Answer(problem=f"{self.type} keeps no history here") if jobs else Answer()

    @abc.abstractmethod
    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """End the jobs; return id -> what was done, in a few words.

        Raises:
            SchedulerError: the scheduler refused or did not answer.
        """

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


class CommandScheduler(Scheduler):
    """A scheduler driven by commands. The hooks are pure; running, limits and errors are here.

    Attributes:
        submit_timeout_s, query_timeout_s: wall-clock limits of one command.
    """

    submit_timeout_s: float = 120.0
    query_timeout_s: float = 60.0

    @abc.abstractmethod
    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Find the new job's id among what the submit command printed, banners of the site included; None: no id."""

    @abc.abstractmethod
    def is_unclear(self, finished: commands.Finished) -> bool:
        """Whether a failed submit command may have submitted all the same."""

    @abc.abstractmethod
    def hint(self, said: str) -> str:
        """Return what to do about a refused submission, from the scheduler's words."""

    @abc.abstractmethod
    def queue_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that asks for jobs of the queue; it may answer for more jobs than ``ids``."""

    @abc.abstractmethod
    def parse_queue(self, stdout: str) -> Answer:
        """Read the queue command's output; another shape than expected is a ``problem``, not an empty queue."""

    @abc.abstractmethod
    def history_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that asks for finished jobs."""

    @abc.abstractmethod
    def parse_history(self, stdout: str) -> Answer:
        """Read the history command's output, as `parse_queue` does."""

    @abc.abstractmethod
    def lookup_command(self, submission: Submission) -> list[str]:
        """Return the command that lists the user's jobs with the marks of their submissions."""

    @abc.abstractmethod
    def parse_lookup(self, stdout: str, submission: Submission) -> Submitted | None:
        """Find ``submission`` in the lookup command's output. Raises SchedulerError if that cannot be read."""

    @abc.abstractmethod
    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that cancels."""

    def submit(self, submission: Submission) -> Submitted:
        """See `Scheduler.submit`."""
        argv = self.command_line(submission)
        try:
            finished = commands.run(argv, timeout_s=self.submit_timeout_s, cwd=submission.submit_dir, translate=True)
        except commands.CommandTimeoutError as error:
            raise UnclearSubmitError(error.message) from None
        except KeyboardInterrupt:
            raise UnclearSubmitError(f"{argv[0]}: interrupted before it answered") from None
        found = self.parse_submit(finished.stdout, finished.stderr)
        if finished.code == 0 and found is not None:
            return found
        if finished.code <= 0 or found is not None or self.is_unclear(finished):
            raise UnclearSubmitError(f"{argv[0]}: {finished.said}")
        raise SchedulerError(f"{argv[0]}: {finished.said}", hint=self.hint(finished.said))

    def lookup(self, submission: Submission) -> Submitted | None:
        """See `Scheduler.lookup`."""
        finished = commands.run(self.lookup_command(submission), timeout_s=self.query_timeout_s)
        if finished.code != 0:
            raise SchedulerError(f"{finished.argv[0]}: {finished.said}")
        return self.parse_lookup(finished.stdout, submission)

    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """See `Scheduler.queue`."""
        answer = Answer()
        for cluster, ids in _by_cluster(jobs):
            answer = answer.joined(self._ask(self.queue_command(ids, cluster), self.parse_queue))
        return answer

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        """See `Scheduler.history`."""
        answer = Answer()
        for cluster, ids in _by_cluster(jobs):
            for part in chunks(ids):
                answer = answer.joined(self._ask(self.history_command(part, cluster), self.parse_history))
        return answer

    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """See `Scheduler.cancel`."""
        for cluster, ids in _by_cluster(jobs):
            for part in chunks(ids):
                argv = self.cancel_command(part, cluster)
                finished = commands.run(argv, timeout_s=self.query_timeout_s)
                if finished.code != 0:
                    raise SchedulerError(f"{argv[0]}: {finished.said}", hint="hpcjob status shows what is left")
        return {job.id: "asked to end" for job in jobs}

    def _ask(self, argv: list[str], parse: _Parser) -> Answer:
        try:
            finished = commands.run(argv, timeout_s=self.query_timeout_s)
        except SchedulerError as error:
            return Answer(problem=error.message)
        if finished.code != 0:
            return Answer(problem=f"{argv[0]}: {finished.said}")
        answer = parse(finished.stdout)
        return answer if answer.problem is None else Answer(answer.reports, f"{argv[0]}: {answer.problem}")


def _by_cluster(jobs: Iterable[JobRef]) -> Iterator[tuple[str | None, list[str]]]:
    groups: dict[str | None, dict[str, None]] = {}
    for job in jobs:
        groups.setdefault(job.cluster, {})[job.id] = None
    for cluster, ids in groups.items():
        yield cluster, list(ids)


def chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    """Split ``ids`` so that each part, joined by commas, fits into one argument of a command."""
    part: list[str] = []
    size = 0
    for job_id in ids:
        size += len(job_id) + 1
        if part and size > _ARGUMENT_BYTES:
            yield part
            part, size = [], len(job_id) + 1
        part.append(job_id)
    if part:
        yield part

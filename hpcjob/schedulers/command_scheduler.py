"""Schedulers that are driven by commands: running, limits and errors are here, how one differs is in small hooks.

Each hook is a pure function from arguments to an argv, or from a command's words to values.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpcjob.errors import SchedulerError
from hpcjob.schedulers import commands
from hpcjob.schedulers.base import (
    Answer,
    JobRef,
    Mark,
    Report,
    Scheduler,
    Submission,
    Submitted,
    UnclearSubmitError,
)
from hpcjob.states import State

_Parser = Callable[[str], Answer]
_Command = Callable[[Sequence[str], str | None], list[str]]
_LIVELIEST = (State.RUNNING, State.COMPLETING, State.SUSPENDED, State.PENDING, State.UNKNOWN)
_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one argument; room is left for what stands around the ids


class CommandScheduler(Scheduler):
    """A scheduler driven by commands.

    It remembers one thing: which of several forms of a command this site takes.

    Attributes:
        submit_timeout_s, query_timeout_s: wall-clock limits of one command.
        asks_by_id: whether `queue_command` names the jobs, so that very many are asked for in parts.
        unclear: what the submit command says when the request may have arrived before the answer was lost.
        hints: words of a refusal -> what to do; both are patterns, the case of letters does not matter.
        hands_down_environment: whether the submit command's environment, and so its locale, becomes the job's.
    """

    unclear: str
    hints: Mapping[str, str]
    submit_timeout_s: float = 120.0
    query_timeout_s: float = 60.0
    asks_by_id: bool = False
    hands_down_environment: bool = False

    def __init__(self) -> None:
        self._understood: dict[str, int] = {}

    @abc.abstractmethod
    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Find the new job's id among what the submit command printed, banners of the site included; None: no id."""

    def is_unclear(self, finished: commands.Finished) -> bool:
        """Whether a failed submit command may have submitted all the same."""
        return re.search(self.unclear, finished.stderr + finished.stdout, re.IGNORECASE) is not None

    def hint(self, said: str) -> str:
        """Return what to do about a refused submission, from the scheduler's words."""
        for pattern, hint in self.hints.items():
            if re.search(pattern, said, re.IGNORECASE):
                return hint
        return "hpcjob submit --dry-run shows the script and the command"

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
    def lookup_command(self, mark: Mark) -> list[str]:
        """Return the command that lists the user's jobs with the marks of their submissions."""

    @abc.abstractmethod
    def parse_lookup(self, stdout: str, mark: Mark) -> Submitted | None:
        """Find the marked submission in the lookup command's output. Raises SchedulerError if that cannot be read."""

    @abc.abstractmethod
    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that cancels."""

    @abc.abstractmethod
    def hold_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that keeps waiting jobs from starting."""

    @abc.abstractmethod
    def release_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Return the command that lets held jobs start."""

    def queue_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """Return `queue_command`, and what a site's own version of it takes instead; `parse_queue` reads them all."""
        return [self.queue_command(ids, cluster)]

    def history_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """Return `history_command`, and other forms, as `queue_forms` does."""
        return [self.history_command(ids, cluster)]

    def trouble(self, finished: commands.Finished) -> str | None:
        """Return why a query or an order was not carried out; None if all there is to say is that a job is gone."""
        return finished.said if finished.code != 0 else None

    def submit(self, submission: Submission) -> Submitted:
        """See `Scheduler.submit`."""
        argv = self.command_line(submission)
        try:
            finished = commands.run(
                argv,
                timeout_s=self.submit_timeout_s,
                cwd=submission.submit_dir,
                translate=self.hands_down_environment,
            )
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

    def lookup(self, mark: Mark) -> Submitted | None:
        """See `Scheduler.lookup`."""
        finished = commands.run(self.lookup_command(mark), timeout_s=self.query_timeout_s)
        if finished.code != 0:
            raise SchedulerError(f"{finished.argv[0]}: {finished.said}")
        return self.find(mark, finished)

    def find(self, mark: Mark, finished: commands.Finished) -> Submitted | None:
        """Find a submission in what a lookup printed; not to be found in half of a list is not to be absent.

        Raises:
            SchedulerError: the output cannot be read, or was cut.
        """
        found = self.parse_lookup(finished.stdout, mark)
        _, problem = whole_lines(finished.stdout)
        if found is None and problem:
            raise SchedulerError(f"{finished.argv[0]}: {problem}")
        return found

    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        """See `Scheduler.queue`."""
        answer = Answer()
        for cluster, ids in _by_cluster(jobs, self.query_id):
            for part in chunks(ids) if self.asks_by_id else [ids]:
                answer = answer.joined(self._ask(self.queue_forms(part, cluster), self.parse_queue))
        return self.named(answer, jobs)

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        """See `Scheduler.history`."""
        answer = Answer()
        for cluster, ids in _by_cluster(jobs, self.query_id):
            for part in chunks(ids):
                answer = answer.joined(self._ask(self.history_forms(part, cluster), self.parse_history))
        return self.named(answer, jobs)

    def expected_start(self, job: JobRef) -> str | None:
        """See `Scheduler.expected_start`; the words are the scheduler's."""
        argv = self.start_command(self.own_id(job), job.cluster)
        try:
            finished = commands.run(argv, timeout_s=self.query_timeout_s) if argv else None
        except SchedulerError:
            return None
        return self.parse_start(finished.stdout) if finished is not None and finished.code == 0 else None

    def start_command(self, job_id: str, cluster: str | None) -> list[str] | None:
        """Return the command that tells when a job will start, if there is one."""
        return None

    def parse_start(self, stdout: str) -> str | None:
        """Find that time in what `start_command` printed."""
        return None

    def query_id(self, job: JobRef) -> str:
        """Return the id by which a job is asked for: of an array's element the array's, which tells of all."""
        return self.own_id(job) if job.array is None else self.own_id(replace(job, id=job.array, array=None, spec="0"))

    def named(self, answer: Answer, jobs: Sequence[JobRef]) -> Answer:
        """Return ``answer`` under our names of ``jobs``: the scheduler's name of one element may be ours of another."""
        if not any(job.array or job.spec for job in jobs):
            return answer
        named = {job.id: answer.reports.get(self.own_id(job)) for job in jobs}
        return Answer({name: report for name, report in named.items() if report is not None}, answer.problem)

    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """See `Scheduler.cancel`."""
        self._order(jobs, self.cancel_command)
        return {job.id: "asked to end" for job in jobs}

    def hold(self, jobs: Sequence[JobRef]) -> None:
        """See `Scheduler.hold`."""
        self._order(jobs, self.hold_command)

    def release(self, jobs: Sequence[JobRef]) -> None:
        """See `Scheduler.release`."""
        self._order(jobs, self.release_command)

    def _order(self, jobs: Sequence[JobRef], command: _Command) -> None:
        for cluster, ids in _by_cluster(jobs, self.own_id):
            for part in chunks(ids):
                finished = commands.run(command(part, cluster), timeout_s=self.query_timeout_s)
                if problem := self.trouble(finished):
                    raise SchedulerError(f"{finished.argv[0]}: {problem}", hint="hpcjob status shows what is left")

    def _ask(self, forms: list[list[str]], parse: _Parser) -> Answer:
        """Ask in the form that was understood before, else in each until one is; the first one's problem is told."""
        key = parse.__name__
        first: Answer | None = None
        known = self._understood.get(key)
        for number, argv in enumerate(forms):
            if known is not None and number != known:
                continue
            try:
                finished = commands.run(argv, timeout_s=self.query_timeout_s)
            except SchedulerError as error:
                return first or Answer(problem=error.message)
            answer = parse(finished.stdout)
            problem = self.trouble(finished) or answer.problem
            if problem is None:
                self._understood[key] = number
                return answer
            first = first or Answer(answer.reports, f"{argv[0]}: {problem}")
        assert first is not None
        return first


def the_one(ids: Iterable[str]) -> Submitted | None:
    """Return the job of that id; None where there are several: one may be a number in a site's banner."""
    different = set(ids)
    return Submitted(different.pop()) if len(different) == 1 else None


def bare_id(pattern: re.Pattern[str], stdout: str) -> list[Any]:
    """Return the ids that stand alone in a line, if one is the last line: a number elsewhere may be of anything."""
    lines = stdout.rstrip().split("\n")
    return pattern.findall(stdout) if pattern.fullmatch(lines[-1]) else []


def whole_lines(stdout: str) -> tuple[list[str], str | None]:
    """Return the lines that end as lines do, and the problem if there is a rest: a command was cut in its middle."""
    whole, _, rest = stdout.rpartition("\n")
    return whole.split("\n") if whole else [], f"its last line was cut: {rest[:80]!r}" if rest.strip() else None


def livelier(known: Report | None, told: Report) -> Report:
    """Return which of two reports counts for a job with several rows: an array is alive as long as one element is."""
    if known is None or known.state not in _LIVELIEST:
        return told
    if told.state in _LIVELIEST and _LIVELIEST.index(told.state) < _LIVELIEST.index(known.state):
        return told
    return known


def _by_cluster(jobs: Iterable[JobRef], name: Callable[[JobRef], str]) -> Iterator[tuple[str | None, list[str]]]:
    groups: dict[str | None, dict[str, None]] = {}
    for job in jobs:
        groups.setdefault(job.cluster, {})[name(job)] = None
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

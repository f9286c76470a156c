"""Several jobs of one ``hpcjob submit``: all looked at first, then submitted one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hpcjob.cli.options import plans_from_options, show_warnings
from hpcjob.errors import HpcjobError, InputError, SchedulerError
from hpcjob.needs import check_needs
from hpcjob.precheck import check_training
from hpcjob.render import render
from hpcjob.schedulers.base import UnclearSubmitError
from hpcjob.tracking import dependencies, submission
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.after import Dependency
    from hpcjob.job import JobFile
    from hpcjob.plan import Plan
    from hpcjob.profile import ClusterProfile
    from hpcjob.tracking.records import Record
    from hpcjob.tracking.submission import Prepared


class Refusals:
    """All that is found wrong before a submission, told together; what several jobs share is told once."""

    def __init__(self) -> None:
        self._errors: dict[str, InputError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep an InputError that is raised inside, and go on."""
        try:
            yield
        except InputError as error:
            self._errors.setdefault(str(error), error)

    def tell(self) -> None:
        """Tell each; raise the last, as who raises it alone does. Raises InputError."""
        *others, last = self._errors.values()
        for error in others:
            tell(str(error).replace("\n", "\n        "))
        raise last


class Batch:
    """The jobs that one command submits.

    Args:
        jobs: job files; None: the default one.
        options: what `jobs_options` gave.
        chain: whether each job file comes after the one before it.
        check: whether the files that jobs need are looked for, and training configurations read.
        strict: whether a warning is refused.

    Raises:
        InputError: one of them is refused, for the last of the reasons, of which the others have been told; nothing has
            been submitted.
    """

    def __init__(
        self, jobs: Sequence[str | None], options: Mapping[str, Any], *, chain: bool, check: bool, strict: bool
    ) -> None:
        self._jobs = jobs
        self._options = dict(options)
        self._chain = chain
        self._files = [self._plans(job, ()) for job in jobs]
        refusals = Refusals()
        for number, plans in enumerate(self._files):
            for plan in plans:
                found: list[str] = []
                if check:
                    with refusals.kept():
                        found += check_needs(plan, is_first=not (chain and number))
                    with refusals.kept():
                        found += check_training(plan)
                for note in [*plan.notes, *found]:
                    tell(f"note: {note}")
                with refusals.kept():
                    show_warnings(plan, strict=strict)
        if refusals:
            for plan in (plan for plans in self._files for plan in plans):
                with refusals.kept():  # to render it may be refused, too
                    submission.check(_prepared(plan, first=False))
            refusals.tell()

    @property
    def count(self) -> int:
        """How many jobs these are."""
        return sum(map(len, self._files))

    def prepared(self) -> Iterator[Prepared]:
        """Yield each submission, as far as it is known before those that it comes after have an id."""
        for plans in self._files:
            for plan in plans:
                yield _prepared(plan, first=False)

    def submit(self) -> Iterator[Record]:
        """Submit them in order and yield each as it is recorded.

        Raises:
            HpcjobError: one was refused; what was submitted before it is said.
        """
        done: list[Record] = []
        before: list[Record] = []
        for number, job in enumerate(self._jobs):
            try:
                plans = self._plans(job, before) if before else self._files[number]
                latest = []
                for place, plan in enumerate(plans):
                    _tell_news(plan, self._files[number][place])
                    record = self._submit(plan, number, place, before)
                    latest.append(record)
                    done.append(record)
                    yield record
            except HpcjobError as error:
                if done:
                    ids = " ".join(record.id for record in done)
                    tell(f"submitted before this: {ids} (hpcjob cancel {ids})")
                raise error from None
            before = latest if self._chain else []

    def _submit(self, plan: Plan, number: int, place: int, before: Sequence[Record]) -> Record:
        """Submit one job. What it comes after may end between the look at it and the submission, which is refused then.

        Args:
            number: of its file. place: of its plan, of those that the file gives.
        """
        has_more = self._chain and number + 1 < len(self._jobs)
        try:
            return submission.submit(_prepared(plan, first=has_more and not plan.after), tell=tell)
        except UnclearSubmitError:
            raise
        except SchedulerError:
            again = self._plans(self._jobs[number], before)[place] if plan.after else plan
            if again.after == plan.after:
                raise
        _tell_news(again, plan)
        return submission.submit(_prepared(again, first=has_more and not again.after), tell=tell)

    def _plans(self, job: str | None, before: Sequence[Record]) -> list[Plan]:
        after = [*self._options.get("after", ()), *(f"ok:{record.profile}:{record.id}" for record in before)]
        return plans_from_options(job=job, **{**self._options, "after": after}, find_after=_found)


def _tell_news(plan: Plan, known: Plan) -> None:
    """Tell the notes of a plan that an earlier look at it did not give."""
    for note in plan.notes:
        if note not in known.notes:
            tell(f"note: {note}")


def _found(job: JobFile, cluster: ClusterProfile) -> tuple[list[Dependency], list[str]]:
    return dependencies.found(job, cluster, ask=True)


def _prepared(plan: Plan, *, first: bool) -> Prepared:
    return submission.prepare(plan, lambda jobdir: render(plan, jobdir=jobdir), first_of_chain=first)

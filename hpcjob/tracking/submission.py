"""Submit a plan once: prepared, submitted, looked up if the answer was lost, recorded. Never submitted twice."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.errors import InputError, SchedulerError
from hpcjob.schedulers.base import Scheduler, Submission, Submitted, UnclearSubmitError, tag_of
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking import intents, jobdir
from hpcjob.tracking.index import append, room_for_record
from hpcjob.tracking.intents import UnrecordedError as UnrecordedError
from hpcjob.tracking.records import Record, now

if TYPE_CHECKING:
    from hpcjob.plan import Plan

# Pauses between two look-ups of a submission whose answer was lost. A controller that froze takes the request when it
# goes on, so one answer without the job is not believed.
_LOOKUP_PAUSES_S = (2.0, 3.0, 5.0, 10.0, 20.0)
_BELIEVED_ABSENT = 2


@dataclass(frozen=True)
class Prepared:
    """A submission that has touched nothing yet.

    Attributes:
        script: text of the script.
        submission: how it will be submitted.
        scheduler: to whom.
    """

    script: str
    submission: Submission
    scheduler: Scheduler

    @property
    def command(self) -> str:
        """The command that submits, as a line for a shell."""
        return shlex.join(self.scheduler.command_line(self.submission))


def prepare(
    plan: Plan, render: Callable[[str], str], submit_dir: Path | None = None, *, first_of_chain: bool = False
) -> Prepared:
    """Render the script of ``plan`` and say where it would go.

    Args:
        render: from the job directory's path to the script's text.
        submit_dir: absolute folder to submit from; default: the current one.
        first_of_chain: whether jobs will be submitted that come after this one.
    """
    submit_dir = submit_dir or Path.cwd()
    path = jobdir.new_path(plan, submit_dir)
    submission = Submission(path / "script.sh", path, tag_of(path), submit_dir, plan, first_of_chain)
    return Prepared(render(str(path)), submission, get_scheduler(plan.profile))


def check(prepared: Prepared) -> None:
    """Refuse what is known to fail.

    Raises:
        InputError: hpcjob cannot submit there, an account is missing, or compute nodes do not see the folder.
    """
    submission = prepared.submission
    prepared.scheduler.check(submission)
    check_site(submission.plan, submission.submit_dir, submission.jobdir)


def check_site(plan: Plan, submit_dir: Path, folder: Path, what: str = "a submission") -> None:
    """Refuse what the site would refuse, or its nodes not see.

    Args:
        folder: of the job: the script runs in ``submit_dir`` and writes here, and `outputs` may be a link out of it.
        what: what is asked for, in words.

    Raises:
        InputError: an account is missing, or compute nodes do not see a folder.
    """
    profile = plan.profile
    if profile.scheduler.account_required and not plan.account:
        raise InputError(
            f"account: none given, {profile.name} refuses {what} without one",
            hint="--account GROUP, `account:` in the job file, or HPCJOB_ACCOUNT",
        )
    for path in (submit_dir, folder):
        jobdir.check_shared(path, plan)


def submit(
    prepared: Prepared, *, tell: Callable[[str], None] = lambda _: None, sleep: Callable[[float], None] = time.sleep
) -> Record:
    """Submit and record; whatever refuses it leaves no trace.

    Args:
        tell: is told what takes long.
        sleep: waits between two look-ups.

    Raises:
        UnclearSubmitError: the scheduler's answer was lost and the job was not found; its directory is kept.
        UnrecordedError: it was submitted, but the index cannot be written.
        HpcjobError: it was not submitted; the message says why.
    """
    submission = prepared.submission
    check(prepared)
    draft = _draft(prepared)
    with intents.under_way(draft):
        with room_for_record(draft.profile):
            jobdir.create(submission.jobdir)
            with _removed_if_refused(submission.jobdir):
                jobdir.fill(submission.jobdir, submission.plan, prepared.script)
                submitted = _submitted(prepared, tell, sleep)
        record = msgspec.structs.replace(intents.identified(draft, submitted), submitted=now())
        try:
            append(record)
        except OSError as error:
            raise UnrecordedError(
                f"job {record.id} is submitted, but could not be recorded: {error.filename}: {error.strerror}",
                hint=f"fix that, then: {attach_line(record)}",
            ) from None
    return record


def _draft(prepared: Prepared) -> Record:
    """Return the record of a submission whose id is not known yet."""
    submission = prepared.submission
    plan = submission.plan
    return Record(
        profile=plan.profile.name,
        scheduler=plan.profile.scheduler.type,
        server="",
        id="",
        submitted=now(),
        name=plan.name,
        directory=str(submission.jobdir),
        submit_dir=str(submission.submit_dir),
        nodes=plan.nodes,
        walltime_s=plan.walltime_s,
        command=prepared.command,
        history=plan.profile.scheduler.history,
        array=plan.array.spec if plan.array else None,
        after=tuple(f"after{one.condition}:{one.id}" for one in plan.after),
    )


def _submitted(prepared: Prepared, tell: Callable[[str], None], sleep: Callable[[float], None]) -> Submitted:
    """Ask the scheduler, and look for the job if the answer was lost."""
    try:
        return prepared.scheduler.submit(prepared.submission)
    except UnclearSubmitError as error:
        tell(f"{error.message}; looking for the job in the queue")
        try:
            return _find(prepared, error, sleep)
        except KeyboardInterrupt:
            raise UnclearSubmitError(
                f"{error.message}; interrupted while the queue was looked through", hint="hpcjob list looks again"
            ) from None


def attach_line(record: Record) -> str:
    """Return the command that records a submitted job again."""
    log = record.directory if record.array else f"{record.directory}/{record.id}_job.out"
    return shlex.join(["hpcjob", "attach", record.id, log, "--profile", record.profile, "--name", record.name])


@contextmanager
def _removed_if_refused(path: Path) -> Iterator[None]:
    try:
        yield
    except UnclearSubmitError:
        raise
    except BaseException:
        jobdir.remove(path)
        raise


def _find(prepared: Prepared, unclear: UnclearSubmitError, sleep: Callable[[float], None]) -> Submitted:
    """Look for a submission whose answer was lost.

    Raises:
        SchedulerError: the scheduler answered, more than once, and does not have it.
        UnclearSubmitError: it did not answer.
    """
    absent = 0
    for pause_s in _LOOKUP_PAUSES_S:
        sleep(pause_s)
        if (started := jobdir.started_id(prepared.submission.jobdir)) is not None:
            return Submitted(started)
        try:
            found = prepared.scheduler.lookup(prepared.submission)
        except SchedulerError:
            continue
        if found is not None:
            return found
        absent += 1
        if absent == _BELIEVED_ABSENT:
            raise SchedulerError(
                f"{unclear.message}; the queue was looked through twice, the job is not there",
                hint="submit again when the scheduler answers",
            )
    submission = prepared.submission
    raise UnclearSubmitError(
        f"{unclear.message}; whether the job is in the queue is not known, for the queue does not answer either",
        hint=f"do not submit again before you have looked for {submission.script} in the queue; if it is there: "
        f"hpcjob attach ID {submission.jobdir} --profile {submission.plan.profile.name}",
    )

"""Three witnesses, one state: queue, history, exit record; no query that failed ever ends a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcjob.cli.jobs import colour_of, note_of
from hpcjob.schedulers.base import Answer, JobRef, Report, Scheduler, Submission, Submitted
from hpcjob.states import State
from hpcjob.tracking.exit_record import meaning, read_exit_record, read_outcome
from hpcjob.tracking.status import Status, ask


class Told(Scheduler):
    """A scheduler that answers what it was told to, and counts."""

    type = "slurm"

    def __init__(self, queue: Answer, history: Answer | None = None) -> None:
        self.answers = (queue, history or Answer())
        self.asked: list[str] = []

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        raise NotImplementedError

    def submit(self, submission: Submission) -> Submitted:
        raise NotImplementedError

    def lookup(self, submission: Submission) -> Submitted | None:
        raise NotImplementedError

    def cancel(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        raise NotImplementedError

    def queue(self, jobs: Sequence[JobRef]) -> Answer:
        self.asked.append("queue")
        return self.answers[0]

    def history(self, jobs: Sequence[JobRef]) -> Answer:
        if jobs:
            self.asked.append("history")
        return self.answers[1]


def leave(code: int, signal: str | None = None, job_id: str = "1") -> None:
    """Write an exit record into the current folder."""
    value = {"code": code, "signal": signal, "time": "2026-11-29T12:00:00+09:00", "host": "h", "step": None}
    Path(f"{job_id}_exit.json").write_text(json.dumps(value))


def status(queue: Answer, history: Answer | None = None, *, keeps_history: bool = True) -> Status:
    """Ask about job 1, whose folder is the current one."""
    return ask(Told(queue, history), [JobRef("1", Path.cwd())], history=keeps_history)["1"]


def says(state: State, code: int | None = None, reason: str | None = None) -> Answer:
    """Answer that job 1 is in ``state``."""
    return Answer({"1": Report(state, code, reason)})


ABSENT = Answer()
BROKEN = Answer(problem="squeue: Socket timed out")


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.COMPLETING, State.SUSPENDED])
def test_alive_in_the_queue_is_alive(state: State) -> None:
    """A requeued job is there again, with the exit record of its last run beside it."""
    leave(0)
    assert status(says(state)).state is state


def test_failure_whose_code_the_history_does_not_have_yet_has_not_ended() -> None:
    """sacct lags behind squeue: a code that comes a moment later must not be lost."""
    assert status(says(State.FAILED), says(State.RUNNING)).state is State.COMPLETING
    assert status(says(State.FAILED), says(State.FAILED, 7)).exit_code == 7
    assert status(says(State.FAILED), ABSENT).state is State.COMPLETING
    assert status(says(State.FAILED), Answer(problem="sacct: down")).state is State.FAILED
    leave(9)
    assert status(says(State.FAILED), ABSENT).exit_code == 9


def test_failure_where_no_history_is_kept_has_ended() -> None:
    """Nobody will ever tell its code."""
    told = Told(says(State.FAILED))
    assert ask(told, [JobRef("1", Path.cwd())], history=False)["1"].state is State.FAILED


def test_an_unknown_word_in_the_queue_is_alive() -> None:
    """What the scheduler's word means is not known: UNKNOWN, whatever a record says."""
    leave(0)
    assert status(says(State.UNKNOWN)).state is State.UNKNOWN


def test_absent_is_not_done() -> None:
    """Gone from the queue, without record or history: UNKNOWN, alive, with the reason."""
    found = status(ABSENT)
    assert found.state is State.UNKNOWN
    assert not found.state.ended
    assert "no exit record" in str(found.reason)


@pytest.mark.parametrize(("code", "state"), [(0, State.COMPLETED), (1, State.FAILED), (87, State.FAILED)])
def test_absent_with_a_record_has_ended(code: int, state: State) -> None:
    """Without accounting the exit record decides."""
    leave(code)
    assert status(ABSENT, Answer(problem="sacct: Slurm accounting storage is disabled")) == Status(
        state, code, None, "exit record"
    )


@pytest.mark.parametrize(
    "state", [State.TIMEOUT, State.CANCELLED, State.NODE_FAIL, State.OUT_OF_MEMORY, State.PREEMPTED]
)
def test_history_says_why_and_the_record_which_code(state: State) -> None:
    """The script wrote 143 when Slurm ended it; why it was ended only Slurm knows."""
    leave(143, "TERM")
    found = status(ABSENT, says(state, None, "by 1000"))
    assert (found.state, found.exit_code, found.source) == (state, 143, "history")


def test_a_record_of_a_failure_is_believed_against_a_history_of_success() -> None:
    """The script itself noted its code before it ended."""
    leave(137)
    told = status(ABSENT, says(State.COMPLETED, 0))
    assert (told.state, told.exit_code) == (State.FAILED, 137)


def test_a_job_that_was_given_up_ended_as_its_own_record_says() -> None:
    """The scheduler saw no end: FAILED, unless the script has noted how it ended before its node was lost."""
    given_up = Answer({"1": Report(State.FAILED, None, "given up", unseen=True)})
    assert status(ABSENT, given_up) == Status(State.FAILED, None, "given up", "history")
    leave(3)
    assert status(ABSENT, given_up) == Status(State.FAILED, 3, None, "exit record")
    leave(0)
    assert status(BROKEN, given_up) == Status(State.COMPLETED, 0, None, "exit record")


def test_history_without_a_record() -> None:
    """The script was killed: the scheduler's code is used, or none."""
    assert status(ABSENT, says(State.FAILED, 137)).exit_code == 137
    assert status(ABSENT, says(State.TIMEOUT)).job_code == 1


def test_history_that_lags_is_alive() -> None:
    """Accounting still says RUNNING for a job that the queue has dropped: alive, unless its script has ended."""
    assert status(ABSENT, says(State.RUNNING)).state is State.RUNNING
    leave(0)
    assert status(ABSENT, says(State.RUNNING)).state is State.COMPLETED


@pytest.mark.parametrize("history", [Answer(problem="sacct: down"), ABSENT])
def test_failed_queries_end_nothing(history: Answer) -> None:
    """Controller down: UNKNOWN, with what the command said."""
    found = status(BROKEN, history)
    assert found.state is State.UNKNOWN
    assert found.reason == "squeue: Socket timed out"


def test_while_the_queue_is_silent_other_witnesses_are_heard() -> None:
    """sacct works while slurmctld is down, and the exit record is a file."""
    assert status(BROKEN, says(State.COMPLETED, 0)).state is State.COMPLETED
    leave(3)
    assert status(BROKEN).exit_code == 3


def test_history_is_asked_only_where_it_can_tell_more() -> None:
    """Alive, or ended with 0 by its record: one call. Ended with another code: why? One more for all of them."""
    leave(0, job_id="1")
    leave(1, job_id="2")
    jobs = [JobRef(job_id, Path.cwd()) for job_id in ("1", "2", "3")]
    told = Told(Answer({"3": Report(State.RUNNING)}))
    found = ask(told, jobs)
    assert told.asked == ["queue", "history"]
    assert [found[job_id].state for job_id in ("1", "2", "3")] == [State.COMPLETED, State.FAILED, State.RUNNING]
    quiet = Told(Answer({"3": Report(State.RUNNING)}))
    ask(quiet, [jobs[0], jobs[2]])
    assert quiet.asked == ["queue"]


def test_a_cluster_without_history_is_not_asked_for_it() -> None:
    """The profile says so: no sacct that fails each time."""
    told = Told(ABSENT)
    ask(told, [JobRef("1", Path.cwd())], history=False)
    assert told.asked == ["queue"]


def test_job_codes() -> None:
    """The code that `wait` gives: the job's own; a state that is no success is never 0."""
    assert Status(State.COMPLETED).job_code == 0
    assert Status(State.FAILED, 85).job_code == 85
    assert Status(State.TIMEOUT).job_code == 1
    assert Status(State.CANCELLED, 0).job_code == 1
    assert [meaning(code, State.FAILED) for code in (85, 86, 87, 1)] == [
        "saved for the walltime",
        "stopped on request",
        "a check before the launch failed",
        None,
    ]


@pytest.mark.parametrize(
    ("code", "state", "note", "colour"),
    [
        (85, State.TIMEOUT, "saved for the walltime: submit it again to continue", "yellow"),
        (86, State.CANCELLED, "stopped on request: submit it again to continue", "yellow"),
        (87, State.FAILED, "a check before the launch failed", "red"),
        (1, State.FAILED, None, "red"),
    ],
)
def test_an_end_that_was_asked_for_is_no_failure(code: int, state: State, note: str | None, colour: str) -> None:
    """A scheduler calls each code but 0 a failure; 85 and 86 are a run that saved and ended, whoever tells of it."""
    leave(code)
    silent = Answer(problem="sacct: Slurm accounting storage is disabled")
    told = Answer({"1": Report(State.FAILED, code)})
    for ended in (status(ABSENT, silent), status(told, ABSENT), status(ABSENT, told)):
        assert (ended.state, ended.exit_code, ended.job_code) == (state, code, code)
        assert (note_of(ended), colour_of(ended)) == (note, colour)
    assert colour_of(Status(State.TIMEOUT)) == colour_of(Status(State.CANCELLED, 1)) == "red"


def test_a_stop_that_the_scheduler_asked_for_is_no_request_of_the_users() -> None:
    """Slurm and others end a job at its walltime by SIGTERM, which the trainer takes as a request to stop."""
    assert meaning(86, State.CANCELLED) == "stopped on request"
    for state, words in ((State.TIMEOUT, "walltime"), (State.PREEMPTED, "preempted")):
        note = note_of(Status(state, 86))
        assert note is not None
        assert words in note
        assert "request" not in note


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '{"code": "0", "time": "x"}',
        '{"code": 256, "time": "x"}',
        '{"code": -1, "time": "x"}',
        '{"code": true, "time": "x"}',
        '{"time": "x"}',
        "\xff",
    ],
)
def test_a_damaged_record_is_no_witness(text: str) -> None:
    """An interrupted write or another tool's file never ends a job."""
    Path("1_exit.json").write_text(text, encoding="latin-1")
    assert read_exit_record(Path.cwd(), "1") is None
    assert status(ABSENT).state is State.UNKNOWN


def test_outcome_of_the_trainer() -> None:
    """outcome.json is read when it is one of the four, and left alone otherwise."""
    assert read_outcome(Path.cwd()) is None
    Path("outcome.json").write_text(
        '{"outcome": "saved_for_walltime", "iteration": 120, "checkpoint": "/c", "message": null}'
    )
    outcome = read_outcome(Path.cwd())
    assert outcome is not None
    assert (outcome.outcome, outcome.iteration, outcome.checkpoint) == ("saved_for_walltime", 120, "/c")
    Path("outcome.json").write_text('{"outcome": "splendid", "iteration": 1}')
    assert read_outcome(Path.cwd()) is None

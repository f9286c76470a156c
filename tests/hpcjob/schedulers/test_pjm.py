"""PJM's words, as manuals and programs that drive it have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import Submission, Submitted
from hpcjob.schedulers.commands import Finished
from hpcjob.schedulers.pjm import PjmScheduler
from hpcjob.states import State
from tests.hpcjob.jobs import plan_for

PJM = PjmScheduler()
HEADER = "H,JOB_ID,JOB_NAME,ST,EC,SN,PC\n"
WISTERIA = """Wisteria/BDEC-01 scheduled stop time: 2026/12/25(Fri) 09:00:00 (Remain: 26days 2:10:11)

JOB_ID       JOB_NAME   STATUS  PROJECT    RSCGROUP         START_DATE        ELAPSE           TOKEN    NODE  GPU
"""


@pytest.fixture
def submission() -> Submission:
    """A submission whose script need not exist."""
    jobdir = Path("/work/gg53/u/outputs/gpt/x")
    return Submission(jobdir / "script.sh", jobdir, "hpcjob-x", Path("/work/gg53/u"), plan_for("pjm"))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("[INFO] PJM 0000 pjsub Job 1334958 submitted.\n", Submitted("1334958")),
        ("[INFO.] PJM 0000 pjsub Job 1334958 submitted.\n", Submitted("1334958")),
        ("Maintenance: Job 12 of us\n[INFO] PJM 0000 pjsub Job 1334958_0 submitted.\n", Submitted("1334958_0")),
        ("Maintenance: Job 12 submitted\n[INFO] PJM 0000 pjsub Job 1334958_0 submitted.\n", None),
        ("[ERR.] PJM 0054 pjsub Resource group nosuch does not exist.\n", None),
        ("", None),
    ],
)
def test_the_id_is_found_in_its_sentence(said: str, expected: Submitted | None) -> None:
    """On stdout or stderr, whatever a site prints around it."""
    assert PJM.parse_submit(said, "") == expected
    assert PJM.parse_submit("", said) == expected


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("ACC", State.PENDING),
        ("QUE", State.PENDING),
        ("RNA", State.PENDING),
        ("HLD", State.PENDING),
        ("RNP", State.RUNNING),
        ("RUN", State.RUNNING),
        ("RSM", State.RUNNING),
        ("RNE", State.COMPLETING),
        ("RNO", State.COMPLETING),
        ("SPP", State.SUSPENDED),
        ("SPD", State.SUSPENDED),
        ("CCL", State.CANCELLED),
        ("ERR", State.FAILED),
        ("RJT", State.FAILED),
        ("XYZ", State.UNKNOWN),
    ],
)
def test_words_become_states(word: str, state: State) -> None:
    """Each word of the user guide; one that is not known here never ends a job."""
    report = PJM.parse_queue(f"{HEADER},7,gpt,{word},-,-,-\n").reports["7"]
    assert (report.state, report.exit_code, report.name) == (state, None, "gpt")


@pytest.mark.parametrize(
    ("codes", "state", "code"),
    [
        ("0,0,0", State.COMPLETED, 0),
        ("3,0,0", State.FAILED, 3),
        ("0,9,0", State.FAILED, 137),
        ("0,15,1", State.CANCELLED, None),
        ("143,0,11", State.TIMEOUT, None),
        ("0,0,11", State.TIMEOUT, None),
        ("0,9,12", State.OUT_OF_MEMORY, None),
        ("0,9,23", State.OUT_OF_MEMORY, None),
        ("0,0,20", State.NODE_FAIL, None),
        ("0,0,18", State.PREEMPTED, None),
        ("0,0,16", State.FAILED, None),
        ("0,0,99", State.FAILED, None),
        ("-,-,0", State.UNKNOWN, None),
        ("-,-,-", State.UNKNOWN, None),
    ],
)
def test_ext_is_no_success(codes: str, state: State, code: int | None) -> None:
    """End code, signal and PJM's own code tell how a job ended."""
    report = PJM.parse_history(f"{HEADER},7,gpt,EXT,{codes}\n").reports["7"]
    assert (report.state, report.exit_code) == (state, code)


def test_every_cut_of_an_answer_is_true_or_a_problem() -> None:
    """Wherever the text ends, no job is said to be in a state that it is not in, and what is missing is told."""
    whole = f'{HEADER},7,gpt,EXT,12,0,0\n,8,"a,b",EXT,0,0,11\n,9,c,RUN,-,-,-\n'
    true = {"7": (State.FAILED, 12), "8": (State.TIMEOUT, None), "9": (State.RUNNING, None)}
    for end in range(len(whole)):
        answer = PJM.parse_queue(whole[:end])
        assert answer.problem or {key: (told.state, told.exit_code) for key, told in answer.reports.items()} == {
            key: true[key] for key in list(true)[: whole[:end].count("\n") - 1]
        }, end
    assert len(PJM.parse_queue(whole).reports) == 3


@pytest.mark.parametrize(
    "text",
    ["", "\n", "maintenance\n", "H,JOB_ID\n", "JOB_ID JOB_NAME MD ST\n", "\0\x1b[2J", f"{HEADER},{'7' * 200_000}\n"],
)
def test_an_answer_of_another_shape_is_a_problem(text: str) -> None:
    """Nothing can be concluded from a job's absence."""
    assert PJM.parse_queue(text).problem is not None


def test_wisterias_table() -> None:
    """Names are cut and touch their neighbours, may be words of the status, and a forecast stands in brackets."""
    rows = (
        "5170490      J03_signal RUNNING gg53      short-a        10/30 15:39:41<    00:21:21        8.5     1    8\n"
        "5170491      very-long-QUEUED  gg53      short-a        (10/30 18:00)<     00:00:00        0.0     1    8\n"
        "5170492      CANCEL     RUNNING gg53      short-a        10/30 15:39:41<    00:21:21        8.5     1    8\n"
        "5170493      END        CANCEL  gg53      short-a        10/30 15:39:41     00:21:21        8.5     1    8\n"
        "5170494      a          HOLD    gg53      short-a        -                  00:00:00        0.0     1    8\n"
        "5170495      b          END     gg53      short-a        10/30 15:39:41     00:21:21        8.5     1    8\n"
        "5170496      c          STRANGE gg53      short-a        10/30 15:39:41     00:21:21        8.5     1    8\n"
    )
    answer = PJM.parse_queue(WISTERIA + rows)
    assert answer.problem is None
    states = [State.RUNNING, State.PENDING, State.RUNNING, State.CANCELLED, State.PENDING, State.UNKNOWN, State.UNKNOWN]
    assert [report.state for report in answer.reports.values()] == states
    assert answer.reports["5170490"].name == "J03_signal"
    assert PJM.parse_queue(WISTERIA).reports == {}
    assert "cut" in str(PJM.parse_queue(WISTERIA + rows[:60]).problem)


def test_errors_on_stdout_are_trouble_whatever_the_code() -> None:
    """PJM's own lines tell; a job that is gone is none."""
    argv = ("pjdel", "7")
    gone = "[ERR.] PJM 0110 pjdel Job 7 does not exist.\n"
    down = "[ERR.] PJM 9001 pjdel The job operation server is not running.\n"
    assert PJM.trouble(Finished(argv, 1, "", gone)) is None
    assert PJM.trouble(Finished(argv, 0, "[INFO] PJM 0100 pjdel Accepted job 7.\n", "")) is None
    assert "not running" in str(PJM.trouble(Finished(argv, 0, down, "")))
    assert "not running" in str(PJM.trouble(Finished(argv, 1, "", gone + down)))
    assert PJM.trouble(Finished(argv, 2, "", "")) is not None


def test_commands(submission: Submission) -> None:
    """One call for all jobs; the environment is not handed over; a site's own form comes second."""
    assert PJM.command_line(submission) == ("pjsub", str(submission.script))
    assert PJM.queue_forms(["7"], None) == [["pjstat", "--data", "--choose=jid,jnam,st,ec,sn,pc"], ["pjstat"]]
    assert PJM.history_forms(["7"], None)[1] == ["pjstat", "-H"]
    assert PJM.cancel_command(["7", "8"], None) == ["pjdel", "7", "8"]
    assert PJM.hold_command(["7"], None) == ["pjhold", "7"]
    assert PJM.release_command(["7"], None) == ["pjrls", "7"]


def test_lookup_by_the_path_of_the_output(submission: Submission) -> None:
    """The job directory is this submission's alone; a list without paths tells nothing."""
    table = "H,JOB_ID,STD\n,6,/work/other/6_sched.out\n"
    assert PJM.parse_lookup(table, submission) is None
    assert PJM.parse_lookup(f"{table},7,{submission.jobdir}/7_sched.out\n", submission) == Submitted("7")
    with pytest.raises(SchedulerError, match="not a list of jobs"):
        PJM.parse_lookup("busy\n", submission)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Resource group nosuch does not exist.", "--queue"),
        ("Group is not specified or not permitted.", "--account"),
        ("elapse time limit", "--walltime"),
        ("The job operation server is not running.", "when PJM answers"),
        ("unheard of", "--dry-run"),
    ],
)
def test_hints(said: str, hint: str) -> None:
    """Each common refusal says what to do."""
    assert hint in PJM.hint(said)


def test_a_step_that_comes_too_late_is_no_unknown_resource_group() -> None:
    """pjsub names the step job that has ended (step jobs, user guide of Fugaku): what to do is another thing."""
    assert PJM.hint("pjsub: [ERR.] PJM 0110 pjsub Job 64856 does not exist.").startswith(
        "a step job accepts no more steps"
    )
    assert "--queue" in PJM.hint("pjsub: [ERR.] PJM 0054 pjsub Resource group nosuch does not exist.")

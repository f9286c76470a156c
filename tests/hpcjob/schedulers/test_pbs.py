"""PBS's words, as a running OpenPBS prints them, and as sites vary them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import JobRef, Submission, Submitted, UnclearSubmitError
from hpcjob.schedulers.commands import Finished
from hpcjob.schedulers.pbs import PbsScheduler
from hpcjob.states import State
from tests.emulators import pbs as emulated
from tests.hpcjob.jobs import fake_command, plan_for, with_path

PBS = PbsScheduler()
JOB: dict[str, Any] = {
    "state": "ended",
    "name": "gpt",
    "queue": "rt_HF",
    "project": "grp",
    "created": 0.0,
    "started": 1.0,
    "ended": 2.0,
    "walltime_s": 600,
    "select": "2",
    "nodes": 2,
    "submit_dir": "/home/u",
    "cwd": "/home/u",
    "output": "/home/u/outputs/gpt/x/sched.out",
    "live_output": True,
    "arguments": "/home/u/outputs/gpt/x/script.sh",
}


def record(**changes: Any) -> str:
    """A job as ``qstat -f`` prints it."""
    return emulated.full("101", {**JOB, **changes})


@pytest.fixture
def submission() -> Submission:
    """A submission whose script need not exist."""
    jobdir = Path("/home/u/outputs/gpt/x")
    return Submission(jobdir / "script.sh", jobdir, "hpcjob-x", Path("/home/u"), plan_for("pbs"))


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("1234.pbs1\n", Submitted("1234.pbs1")),
        ("85[].pbs1\n", Submitted("85[].pbs1")),
        ("1234.pbs1\n31.12\n", None),
        ("Maintenance on 2026-12-25\nproject 123 has 5.5 points\n1234.opbs\n", Submitted("1234.opbs")),
        ("project 123 has 5.5 points\n", None),
        ("", None),
    ],
)
def test_the_id_is_found_among_banners(stdout: str, expected: Submitted | None) -> None:
    """The id stands alone in its line."""
    assert PBS.parse_submit(stdout, "") == expected


@pytest.mark.parametrize(
    ("job", "state", "code"),
    [
        ({"state": "queued"}, State.PENDING, None),
        ({"state": "held"}, State.PENDING, None),
        ({"state": "running"}, State.RUNNING, None),
        ({"code": 0}, State.COMPLETED, 0),
        ({"code": 3}, State.FAILED, 3),
        ({"code": -9}, State.FAILED, 137),
        ({"code": -15, "deleted": True}, State.CANCELLED, None),
        ({"code": 0, "deleted": True, "status_when_deleted": 0}, State.CANCELLED, None),
        ({"deleted": True}, State.CANCELLED, None),
        ({"code": 0, "over_walltime": True}, State.TIMEOUT, None),
        ({}, State.CANCELLED, None),  # removed with its dependency
    ],
)
def test_states_and_codes(job: dict[str, Any], state: State, code: int | None) -> None:
    """F alone says nothing, and an exit status of 0 is no success where the job was deleted."""
    answer = PBS.parse_queue(record(**job))
    assert answer.problem is None
    for job_id in ("101.pbs1", "101"):
        assert (answer.reports[job_id].state, answer.reports[job_id].exit_code) == (state, code)
    assert answer.reports["101"].id == "101.pbs1"


@pytest.mark.parametrize(
    ("status", "substate", "state", "code"),
    [
        ("265", "93", State.FAILED, 137),
        ("271", "91", State.CANCELLED, None),
        ("-20", "93", State.NODE_FAIL, None),
        ("-27", "93", State.OUT_OF_MEMORY, None),
        ("-1", "93", State.FAILED, None),
        ("0", "93", State.FAILED, None),
        ("", "93", State.UNKNOWN, None),
    ],
)
def test_what_an_exit_status_means(status: str, substate: str, state: State, code: int | None) -> None:
    """256 and more is a signal, below 0 PBS speaks; 0 in substate 93 is a lost node or an array with a failure."""
    text = record(code=0).replace("Exit_status = 0", f"Exit_status = {status}").replace("= 92", f"= {substate}")
    report = PBS.parse_queue(text).reports["101.pbs1"]
    assert (report.state, report.exit_code) == (state, code)


def test_reasons() -> None:
    """Why it waits, why it was removed, and that its output was lost."""
    assert "Insufficient amount of resource" in str(PBS.parse_queue(record(state="queued")).reports["101"].reason)
    assert PBS.parse_queue(record(state="held")).reports["101"].reason == "held"
    after = record(state="queued", after=[["afterok", "97"]])
    assert PBS.parse_queue(after).reports["101"].reason == "waits for another job"
    depend = "    depend = afterok:97[].pbs1@pbs1,beforeany:102.pbs1@pbs1\n"
    after = after.replace("    substate = 22\n", f"{depend}    substate = 22\n")
    assert PBS.parse_queue(after).reports["101"].reason == "waits for afterok:97[].pbs1"
    assert "dependency was not satisfied" in str(PBS.parse_queue(record()).reports["101"].reason)
    lost = record(code=0, live_output=False)
    assert "Stageout_status = 0" in lost
    assert "could not be delivered" in str(PBS.parse_queue(lost).reports["101"].reason)
    assert PBS.parse_queue(record(state="running")).reports["101"].reason is None


def test_an_unknown_letter_is_alive() -> None:
    """A state that is not known here never ends a job."""
    report = PBS.parse_queue(record(state="running").replace("job_state = R", "job_state = Z")).reports["101"]
    assert (report.state, report.reason) == (State.UNKNOWN, "PBS reports 'Z'")


def test_values_that_go_on_behind_a_tab_and_values_that_imitate_attributes() -> None:
    """A long path is put together again; of two job_state the first, PBS's own, counts."""
    folder = "/groups/gaa50000/" + "x" * 120 + "/outputs/gpt/x"
    text = record(state="running", arguments=f"{folder}/script.sh")
    assert "\n\t" in text
    jobdir = Path(folder)
    assert PBS.parse_lookup(text, Submission(jobdir / "script.sh", jobdir, "", Path("/"), plan_for("pbs")))
    fake = text.replace("PBS_O_LANG=C.UTF-8", "A=\n    job_state = F\n    Exit_status = 0")
    assert PBS.parse_queue(fake).reports["101"].state is State.RUNNING


def test_every_cut_of_an_answer_is_true_or_a_problem() -> None:
    """Wherever the text ends, no job is said to be in a state that it is not in, and what is missing is told."""
    whole = (
        record(code=0) + emulated.full("102", {**JOB, "code": 3}) + emulated.full("103", {**JOB, "state": "running"})
    )
    true = {"101": (State.COMPLETED, 0), "102": (State.FAILED, 3), "103": (State.RUNNING, None)}
    for end in range(len(whole)):
        finished = Finished(("qstat", "-f", "101.pbs1", "102.pbs1", "103.pbs1"), 0, whole[:end], "")
        answer = PBS.parse_queue(whole[:end])
        for job_id, report in answer.reports.items():
            assert (report.state, report.exit_code) == true[job_id.partition(".")[0]], end
        assert len(answer.reports) == 6 or answer.problem or PBS.trouble(finished), end


def test_gone_is_no_trouble_silence_is() -> None:
    """35 and 153 name the jobs that are gone; a job without a word, or another error beside it, is a problem."""
    argv = ("qstat", "-f", "101.pbs1", "7.pbs1")
    unknown, other = "qstat: Unknown Job Id 7.pbs1\n", "qstat: cannot connect to server pbs1 (errno=15010)\n"
    done = "qstat: 7.pbs1 Job has finished, use -x or -H to obtain historical job information\n"
    assert PBS.trouble(Finished(argv, 153, record(), unknown)) is None
    assert PBS.trouble(Finished(argv, 35, record(), done)) is None
    assert PBS.trouble(Finished(argv, 153, "", unknown)) == "no information on 101.pbs1"
    assert "no information" in str(PBS.trouble(Finished(argv, 0, "", "")))
    assert "cannot connect" in str(PBS.trouble(Finished(argv, 255, "", other)))
    assert "cannot connect" in str(PBS.trouble(Finished(argv, 153, record(), unknown + other)))
    assert PBS.trouble(Finished(("qdel", "7.pbs1"), 153, "", unknown)) is None
    assert "Unauthorized" in str(PBS.trouble(Finished(("qdel", "7.pbs1"), 159, "", "qdel: Unauthorized Request  7\n")))


@pytest.mark.parametrize("text", ["", "\n", "maintenance today\n", "\0\x1b[2J", '{"Jobs": {}}'])
def test_an_answer_without_records_names_no_job(text: str) -> None:
    """Nothing is read out of it; that it is silent on the jobs asked for is the problem."""
    assert not PBS.parse_queue(text).reports
    assert PBS.trouble(Finished(("qstat", "-f", "101.pbs1"), 0, text, ""))


def test_hooks_without_a_state_are_told() -> None:
    """A record that lacks its state is a problem, not an end."""
    answer = PBS.parse_queue(record(code=0).replace("    job_state = F\n", ""))
    assert not answer.reports
    assert "no state" in str(answer.problem)


def test_commands(submission: Submission) -> None:
    """Jobs are named, all in one call; the environment is not handed over; Miyabi's form comes second."""
    assert PBS.command_line(submission) == ("qsub", str(submission.script))
    assert PBS.queue_command(["1.s", "2[].s"], None) == ["qstat", "-t", "-f", "1.s", "2[].s"]
    assert PBS.history_forms(["1.s"], None) == [
        ["qstat", "-x", "-f", "1.s"],
        ["qstat", "-f", "-H", "--hday", "7", "1.s"],
    ]
    assert PBS.cancel_command(["1.s", "2.s"], None) == ["qdel", "1.s", "2.s"]
    assert PBS.hold_command(["1.s"], None) == ["qhold", "1.s"]
    assert PBS.release_command(["1.s"], None) == ["qrls", "1.s"]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Unknown queue", "qstat -Q"),
        ("Unauthorized Request ", "--account"),
        ("Job violates queue and/or server resource limits", "--walltime"),
        ("would exceed queue generic's per-user limit", "wait until"),
        ("Unknown resource: nosuch", "select"),
        ("directive error: -N x10 # comment ", "--dry-run"),
        ("cannot connect to server pbs1 (errno=15010)", "server answers"),
        ("pbsconf error: pbs conf variables not found: PBS_HOME PBS_EXEC PBS_SERVER", "login node"),
        ("unheard of", "--dry-run"),
    ],
)
def test_hints_for_what_pbs_refuses(said: str, hint: str) -> None:
    """Each common refusal says what to do."""
    assert hint in PBS.hint(said)


@pytest.mark.parametrize(
    "body", ["echo 'qsub: End of File' >&2; exit 183", "echo 7.s; exit 1", "echo done", "kill -9 $$"]
)
def test_a_lost_answer_is_unclear(
    body: str, submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that broke, an id with an error, success without an id: none is a refusal."""
    fake_command(tmp_path / "bin", "qsub", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    here = Submission(submission.script, submission.jobdir, submission.tag, tmp_path, submission.plan)
    with pytest.raises(UnclearSubmitError):
        PBS.submit(here)


def test_lookup_where_nobody_answers(submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed, garbled, cut or empty list is no absence."""
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    for body in ("exit 1", "echo busy", "echo 101.pbs1", "printf 101.pbs1", "true"):
        fake_command(tmp_path / "bin", "qselect", body)
        fake_command(tmp_path / "bin", "qstat", "echo busy")
        with pytest.raises(SchedulerError):
            PBS.lookup(submission)


def test_one_call_for_many_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 jobs are asked for in one call."""
    fake_command(tmp_path / "bin", "qstat", "exit 1")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    PbsScheduler().queue([JobRef(f"{number}.pbs1", tmp_path) for number in range(1000)])
    assert len((tmp_path / "bin" / "qstat.calls").read_text().splitlines()) == 1

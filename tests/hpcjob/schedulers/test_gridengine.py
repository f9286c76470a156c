"""Grid Engine's words, as the commands of 8.1.9 print them, and as sites vary them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import JobRef, Submission, Submitted, UnclearSubmitError
from hpcjob.schedulers.commands import Finished
from hpcjob.schedulers.gridengine import GridEngineScheduler
from hpcjob.states import State
from tests.hpcjob.jobs import calls, fake_command, plan_for, with_path

GE = GridEngineScheduler()
XML = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>1</JB_job_number>
      <JAT_prio>0.75000</JAT_prio>
      <JB_name>very-long-name-here</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-29T17:09:09</JAT_start_time>
      <queue_name>all.q@node1</queue_name>
      <slots>2</slots>
    </job_list>
    <job_list state="running">
      <JB_job_number>5</JB_job_number>
      <JB_name>sweep</JB_name>
      <state>r</state>
      <slots>1</slots>
      <tasks>3</tasks>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>5</JB_job_number>
      <JB_name>sweep</JB_name>
      <state>qw</state>
      <slots>1</slots>
      <tasks>5-9:2,10</tasks>
    </job_list>
    <job_list state="pending">
      <JB_job_number>8</JB_job_number>
      <JB_name>very-long-name-here</JB_name>
      <state>Eqw</state>
      <slots>1</slots>
    </job_list>
  </job_info>
</job_info>
"""
TABLE = """\
job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID 
-----------------------------------------------------------------------------------------------------------------
      1 0.75000 very-long- root         r     11/29/2026 17:09:09 all.q@node1                        2        
      5 0.25000 two words  root         r     11/29/2026 17:09:09 all.q@node2                        1 3
      5 0.25000 two words  root         qw    11/29/2026 17:09:09                                    1 5-9:2,10
      8 0.25000 very-long- root         Eqw   11/29/2026 17:09:09                                    1        
"""  # noqa: W291 - as printed
# Of ABCI 2.0's documentation (github.com/aistabci/abci-docs, en/docs/job-execution.md): a column more, which is blank.
ABCI = """\
job-ID     prior   name       user         state submit/start at     queue                          jclass                         slots ja-task-ID
------------------------------------------------------------------------------------------------------------------------------------------------
     12345 0.25586 run.sh     username     r     06/27/2018 21:14:49 gpu@g0001                                                        80
"""  # noqa: E501 - as printed
RECORD = """==============================================================
qname        all.q               
hostname     node1               
owner        root                
jobname      very-long-name-here 
jobnumber    {id}                   
taskid       {task}
account      tga-test                 
qsub_time    Sun Nov 29 17:09:09 2026
start_time   -/-
end_time     -/-
granted_pe   NONE                
slots        1                   
failed       {failed}
exit_status  {code}                   
ru_wallclock 0s
category     NONE
"""  # noqa: W291 - as printed
TOTALS = """OWNER     WALLCLOCK         UTIME         STIME           CPU             MEMORY
======================================================================================================================
"""


def past(failed: str, code: int | str, job_id: int = 7, task: str = "undefined") -> str:
    """A record as ``qacct -j`` prints it."""
    return RECORD.format(id=job_id, failed=failed, code=code, task=task)


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    """A submission whose script need not exist."""
    jobdir = tmp_path / "outputs" / "gpt" / "x"
    plan = plan_for("gridengine", group="tga-test", account="-g-cli", resource="rt_F")
    return Submission(jobdir / "script.sh", jobdir, "hpcjob-x", tmp_path, plan)


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("12\n", Submitted("12")),
        ("12\n31\n", None),
        ("H,|\n12\nand more words\n", None),
        ("5.1-6:2\n", Submitted("5")),
        ("Your project has\n31 points\n12\n", Submitted("12")),
        ('Your job 12 ("run.sh") has been submitted\n', Submitted("12")),
        ('31\nYour job 12 ("run.sh") has been submitted\n', Submitted("12")),
        ('Your job-array 12.1-10:1 ("run.sh") has been submitted\n', Submitted("12")),
        ("Unable to run job: SIM4403: The amount of estimated job-point(8) is over.\n", None),
        ("", None),
    ],
)
def test_the_id_is_found_among_banners(stdout: str, expected: Submitted | None) -> None:
    """``-terse`` prints the id, a wrapper that drops it a sentence."""
    assert GE.parse_submit(stdout, "") == expected


def test_queue_in_xml_and_as_a_table() -> None:
    """Both say the same; a pending array speaks for each of its elements, the array itself for the liveliest."""
    for text in (XML, TABLE):
        answer = GE.parse_queue(text)
        assert answer.problem is None
        states = {job_id: report.state for job_id, report in answer.reports.items()}
        waiting = dict.fromkeys(("5_5", "5_7", "5_9", "5_10", "8"), State.PENDING)
        assert states == {"1": State.RUNNING, "5": State.RUNNING, "5_3": State.RUNNING, **waiting}
        assert "error state Eqw" in str(answer.reports["8"].reason)
    assert GE.parse_queue(XML).reports["1"].name == "very-long-name-here"
    assert GE.parse_queue(ABCI).reports["12345"].state is State.RUNNING


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", State.PENDING),
        ("hqw", State.PENDING),
        ("hRwq", State.PENDING),
        ("Rq", State.PENDING),
        ("r", State.RUNNING),
        ("t", State.RUNNING),
        ("Rr", State.RUNNING),
        ("Rt", State.RUNNING),
        ("s", State.SUSPENDED),
        ("ts", State.SUSPENDED),
        ("S", State.SUSPENDED),
        ("tS", State.SUSPENDED),
        ("T", State.SUSPENDED),
        ("Rs", State.SUSPENDED),
        ("dr", State.COMPLETING),
        ("dRr", State.COMPLETING),
        ("ds", State.COMPLETING),
        ("Eqw", State.PENDING),
        ("Ehqw", State.PENDING),
        ("EhRqw", State.PENDING),
        ("z", State.UNKNOWN),
        ("xyz", State.UNKNOWN),
    ],
)
def test_letters_become_states(letters: str, state: State) -> None:
    """Each combination of sge_status(5); one that is not known here never ends a job."""
    xml = XML.replace("<state>r</state>", f"<state>{letters}</state>", 1)
    assert GE.parse_queue(xml).reports["1"].state is state


@pytest.mark.parametrize(
    ("failed", "code", "state", "told"),
    [
        ("0", 0, State.COMPLETED, 0),
        ("0", 3, State.FAILED, 3),
        ("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", 137, State.TIMEOUT, None),
        ("100 : assumedly after job", "137                  (Killed)", State.FAILED, 137),
        ("26  : opening input/output file", 0, State.FAILED, None),
        ("25  : rescheduling", 99, State.PENDING, None),
        ("19  : before writing exit_status", 0, State.FAILED, None),
        ("strange", 0, State.FAILED, None),
    ],
)
def test_history(failed: str, code: int | str, state: State, told: int | None) -> None:
    """``failed`` comes first: an exit status of 0 is no success where Grid Engine could not run the job."""
    for text in (past(failed, code), past("0", 0, 6) + past(failed, code) + TOTALS):
        report = GE.parse_history(text).reports["7"]
        assert (report.state, report.exit_code) == (state, told)


# What qacct of 8.1.9 prints of a job given up by `qdel -f` (with its lost node after 41 s, on a living one after 6 s:
# both the same), and of /bin/true.
GIVEN_UP = "ru_wallclock 0s\nru_maxrss    0.000B\nru_minflt    0                   \n"
LIVED = "ru_wallclock 0s\nru_maxrss    4.781KB\nru_minflt    199                 \n"


@pytest.mark.parametrize(
    ("code", "usage", "state", "told"),
    [
        (0, GIVEN_UP, State.FAILED, None),
        (0, LIVED, State.COMPLETED, 0),
        (3, GIVEN_UP, State.FAILED, 3),
        (0, "ru_wallclock 0s\n", State.COMPLETED, 0),
    ],
)
def test_a_job_that_was_given_up_has_not_completed(code: int, usage: str, state: State, told: int | None) -> None:
    """``qdel -f`` writes failed 0 and exit_status 0; that no process was ever there gives it away."""
    text = past("0    ", code).replace("ru_wallclock 0s\n", usage)
    report = GE.parse_history(text).reports["7"]
    assert (report.state, report.exit_code, report.unseen) == (state, told, usage == GIVEN_UP and code == 0)
    assert ("qdel -f" in str(report.reason)) is report.unseen


def test_of_several_records_the_last_counts() -> None:
    """Exit code 99 starts a job anew; a second record then tells its end."""
    answer = GE.parse_history(past("25  : rescheduling", 99) + past("0", 0))
    assert answer.reports["7"].state is State.COMPLETED
    answer = GE.parse_history(past("0", 1, 5, "1") + past("0", 0, 5, "2"))
    assert {key: report.exit_code for key, report in answer.reports.items()} == {"5_1": 1, "5_2": 0}


@pytest.mark.parametrize("text", ["", "\n", "maintenance today\n", "<?xml version='1.0'?>\n<job_info>", "\0\x1b[2J"])
def test_an_answer_of_another_shape_is_a_problem(text: str) -> None:
    """Nothing can be concluded from a job's absence, nor from no words at all."""
    assert GE.parse_queue(text).problem is not None


def test_every_cut_of_an_answer_is_true_or_a_problem() -> None:
    """Wherever the text ends, no job is said to be in a state that it is not in, and what is missing is told."""
    for whole in (XML, TABLE):
        true = GE.parse_queue(whole).reports
        for end in range(len(whole.rstrip())):
            answer = GE.parse_queue(whole[:end])
            assert answer.problem or answer.reports.keys() < true.keys(), end
            assert all(true[job_id].state is told.state for job_id, told in answer.reports.items()), end
    whole = past("37  : qmaster enforced h_rt", 137) + past("0", 12, 8)
    states = {"7": State.TIMEOUT, "8": State.FAILED}
    for end in range(len(whole)):
        reports = GE.parse_history(whole[:end]).reports
        assert all(states[job_id] is told.state for job_id, told in reports.items()), end


def test_gone_is_no_trouble() -> None:
    """Codes other than 0 that only say that jobs are gone; another error beside them is a problem."""
    assert GE.trouble(Finished(("qacct", "-j", "7"), 1, "", "error: job id 7 not found\n")) is None
    said = 'root has registered the job 1 for deletion\ndenied: job "2" does not exist\n'
    assert GE.trouble(Finished(("qdel", "1,2"), 1, said, "")) is None
    assert GE.trouble(Finished(("qdel", "1"), 1, "job 1 is already in deletion\n", "")) is None
    refused = 'root - you do not have the necessary privileges to delete the job "1"\n'
    assert "privileges" in str(GE.trouble(Finished(("qdel", "1"), 1, refused, "")))
    down = "error: commlib error: got select error (Connection refused)\n"
    assert "refused" in str(GE.trouble(Finished(("qstat",), 1, "", down)))


def test_commands(submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group stands on the command line; one call for all jobs, and one for their history."""
    monkeypatch.setattr("hpcjob.schedulers.commands.user_name", lambda: "u")
    assert GE.command_line(submission) == ("qsub", "-g", "tga-test", "-terse", str(submission.script))
    assert GE.queue_forms(["1"], None) == [["qstat", "-xml", "-u", "u"], ["qstat", "-u", "u"]]
    assert GE.history_command(["1", "1_2"], None) == ["qacct", "-j", "1"]
    assert GE.history_command(["1", "2"], None) == ["qacct", "-o", "u", "-j"]
    assert GE.cancel_command(["1", "5_3"], None) == ["qdel", "1,5.3"]
    assert GE.hold_command(["1"], None) == ["qhold", "1"]
    assert GE.release_command(["1"], None) == ["qrls", "1"]


def test_a_site_without_xml_is_asked_for_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form that is understood is remembered; an empty table may be no answer."""
    (tmp_path / "table").write_text(TABLE)
    body = f'[[ $1 != -xml ]] || {{ echo "qstat: Unknown option -xml" >&2; exit 1; }}; cat {tmp_path}/table'
    fake_command(tmp_path / "bin", "qstat", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    scheduler = GridEngineScheduler()
    for _ in range(2):
        assert scheduler.queue([JobRef("1", tmp_path)]).reports["1"].state is State.RUNNING
    assert len(calls(tmp_path / "bin", "qstat")) == 3
    (tmp_path / "table").write_text("")
    assert "no jobs, or it did not answer" in str(scheduler.queue([JobRef("1", tmp_path)]).problem)


def test_lookup_by_the_script(submission: Submission) -> None:
    """Its path is this submission's alone; a garbled list is an error, no absence."""
    text = f"====\njob_number:                 1\nscript_file:                {submission.jobdir}x/script.sh\n"
    assert GE.parse_lookup(text, submission) is None
    more = f"{text}====\njob_number:                 2\nscript_file:                {submission.script}\n"
    assert GE.parse_lookup(more, submission) == Submitted("2")
    with pytest.raises(SchedulerError, match="not a list of jobs"):
        GE.parse_lookup("busy\n", submission)


@pytest.mark.parametrize(
    ("body", "unclear"),
    [
        ("echo 'Unable to run job: failed receiving gdi request response (got no message).' >&2; exit 1", True),
        ("echo done", True),
        ("echo 'Unable to run job: h_rt must be specified' >&2; exit 1", False),
    ],
)
def test_lost_answers_and_refusals(
    body: str, unclear: bool, submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that did not answer may have taken the job; a refusal says what to change."""
    fake_command(tmp_path / "bin", "qsub", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    with pytest.raises(SchedulerError) as caught:
        GE.submit(submission)
    assert isinstance(caught.value, UnclearSubmitError) is unclear
    if not unclear:
        assert "--walltime" in str(caught.value.hint)

"""Slurm's words, as the real commands of 22.05.8 print them, and as other versions and sites vary them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import SchedulerError
from hpcjob.schedulers.base import JobRef, Submission, Submitted, UnclearSubmitError
from hpcjob.schedulers.command_scheduler import chunks
from hpcjob.schedulers.slurm import SlurmScheduler, state_of
from hpcjob.states import State
from tests.hpcjob.jobs import calls, fake_command, plan_for, with_path

SLURM = SlurmScheduler()
QUEUE = """JOBID|STATE|REASON|NAME
1|FAILED|NonZeroExitCode|日本|y
2_[1-3,7%2]|PENDING|JobArrayTaskLimit|sweep
2_4|RUNNING|None|sweep
3|PENDING|DependencyNeverSatisfied|chain
4|RUNNING|None|gpt
5|OUT_OF_MEMORY|OutOfMemory|o.sh
"""
HISTORY = """JobID|State|ExitCode|JobName
123|COMPLETED|0:0|a
124|CANCELLED by 1000|0:0|b
125_3|FAILED|7:0|c
126|TIMEOUT|0:0|d
127|FAILED|0:9|e
128|OUT_OF_MEMORY|0:125|f
129|NODE_FAIL|1:0|g
130|PREEMPTED|0:0|h
131+0|RUNNING|0:0|het
"""


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    """A submission whose script need not exist."""
    jobdir = tmp_path / "outputs" / "日本 |x" / "20261129T120000Z-abc123"
    return Submission(jobdir / "script.sh", jobdir, "hpcjob-20261129T120000Z-abc123", tmp_path, plan_for("slurm"))


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("4711\n", "", Submitted("4711")),
        ("4711;gamma\n", "", Submitted("4711", "gamma")),
        ("Welcome to Lab\nYour project has 31 points left\n4711\n", "", Submitted("4711")),
        ("Submitted batch job 4711\n", "", Submitted("4711")),
        ("Submitted batch job 4711 on cluster gamma\n", "", Submitted("4711", "gamma")),
        ("", "Submitted batch job 4711\n", Submitted("4711")),
        ("project 12 has points\n", "sbatch: warning: 3 nodes\n", None),
        ("4711\n4711\n", "", Submitted("4711")),
        ("4711\n777\n", "", None),
        ("points left:\n777\nthank you\n", "", None),
        ("777\nSubmitted batch job 4711\n", "", None),
        ("4711;gamma\n777\n", "", None),
        ("", "", None),
    ],
)
def test_the_id_is_found_among_banners(stdout: str, stderr: str, expected: Submitted | None) -> None:
    """``ID``, ``ID;CLUSTER`` and the sentence of a wrapper without --parsable, whatever a site prints around them."""
    assert SLURM.parse_submit(stdout, stderr) == expected


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", State.PENDING),
        ("CONFIGURING", State.PENDING),
        ("REQUEUED", State.PENDING),
        ("REQUEUE_HOLD", State.PENDING),
        ("RUNNING", State.RUNNING),
        ("RESIZING", State.RUNNING),
        ("STAGE_OUT", State.COMPLETING),
        ("COMPLETING", State.COMPLETING),
        ("SUSPENDED", State.SUSPENDED),
        ("STOPPED", State.SUSPENDED),
        ("COMPLETED", State.COMPLETED),
        ("CANCELLED by 1000", State.CANCELLED),
        ("CANCELLED+", State.CANCELLED),
        ("TIMEOUT", State.TIMEOUT),
        ("DEADLINE", State.TIMEOUT),
        ("NODE_FAIL", State.NODE_FAIL),
        ("BOOT_FAIL", State.NODE_FAIL),
        ("OUT_OF_MEMORY", State.OUT_OF_MEMORY),
        ("PREEMPTED", State.PREEMPTED),
        ("EXPEDITING", State.UNKNOWN),
        ("SOMETHING_NEW", State.UNKNOWN),
        ("", State.UNKNOWN),
    ],
)
def test_words_become_states_and_unknown_words_are_alive(word: str, state: State) -> None:
    """Each word of squeue(1) and sacct(1); one that is not known here never ends a job."""
    assert state_of(word) is state
    assert not State.UNKNOWN.ended


def test_queue_is_read_with_arrays_names_and_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names may hold ``|``; a pending array speaks for each of its elements, the array itself for the liveliest."""
    fake_command(tmp_path / "bin", "squeue", f"cat <<'END'\n{QUEUE}END")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    asked = ["1", "2", *(f"2_{index}" for index in range(9)), "3", "4", "5"]
    answer = SLURM.queue([JobRef(job_id, tmp_path) for job_id in asked])
    assert answer.problem is None
    assert answer.reports["1"].state is State.FAILED
    assert (answer.reports["1"].reason, answer.reports["1"].name) == (None, "日本|y")
    assert [answer.reports[f"2_{index}"].state for index in (1, 2, 3, 7)] == [State.PENDING] * 4
    assert answer.reports["2_4"].state is State.RUNNING
    assert not {"2_0", "2_5", "2_6", "2_8"} & set(answer.reports)
    assert answer.reports["2"].state is State.RUNNING
    assert answer.reports["3"].reason == "DependencyNeverSatisfied"
    assert answer.reports["4"].reason is None
    assert (answer.reports["5"].state, answer.reports["5"].reason) == (State.OUT_OF_MEMORY, None)


def test_a_row_for_billions_of_elements_is_not_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the elements asked for are looked for in it, steps and single ones too."""
    row = "9_[0-99999999999:3,100000000001%5]|PENDING|Priority|x"
    fake_command(tmp_path / "bin", "squeue", f"echo 'JOBID|STATE|REASON|NAME'; echo '{row}'")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    asked = [JobRef(f"9_{index}", tmp_path) for index in (0, 1, 3, 99_999_999_999, 100_000_000_001, 100_000_000_002)]
    answer = SLURM.queue(asked)
    assert answer.problem is None
    found = {job.id for job in asked} & set(answer.reports)
    assert found == {"9_0", "9_3", "9_99999999999", "9_100000000001"}
    assert answer.reports["9_3"].state is State.PENDING


@pytest.mark.parametrize("between", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_name_with_line_separators_is_one_row(between: str) -> None:
    """Only a newline ends a row, whatever else Python takes for the end of a line."""
    answer = SLURM.parse_queue(f"JOBID|STATE|REASON|NAME\n1|RUNNING|None|a{between}2|FAILED|None|b\n")
    assert answer.problem is None
    assert set(answer.reports) == {"1"}
    assert answer.reports["1"].name == f"a{between}2|FAILED|None|b"


@pytest.mark.parametrize("code", ["\u00b2:0", "9" * 5000 + ":0", ":", "1:x", ""])
def test_an_exit_code_that_is_none(code: str) -> None:
    """Damaged words of sacct are no code, and no traceback."""
    report = SLURM.parse_history(f"JobID|State|ExitCode|JobName\n1|FAILED|{code}|a\n").reports["1"]
    assert (report.state, report.exit_code) == (State.FAILED, None)


def test_clusters_banner_is_no_problem() -> None:
    """``squeue -M`` prints the cluster's name before its table."""
    answer = SLURM.parse_queue(f"CLUSTER: gamma\n{QUEUE}")
    assert answer.problem is None
    assert answer.reports["4"].state is State.RUNNING


@pytest.mark.parametrize(
    "text", ["", "\n", "maintenance today\n", "JOBID STATE\n1 RUNNING\n", '{"jobs": []}', "\0\x1b[2J"]
)
def test_an_answer_of_another_shape_is_a_problem_not_an_empty_queue(text: str) -> None:
    """Without the header that we asked for, nothing can be concluded from a job's absence."""
    assert SLURM.parse_queue(text).problem is not None
    assert SLURM.parse_history(text).problem is not None


def test_a_cut_row_makes_the_answer_partial() -> None:
    """A row that stops in the middle is told; the good rows are used, absence means nothing."""
    answer = SLURM.parse_queue("JOBID|STATE|REASON|NAME\n1|RUNNING|None|a\n2|RUN")
    assert answer.reports["1"].state is State.RUNNING
    assert "2" not in answer.reports
    assert answer.problem is not None


def test_empty_queue_is_whole() -> None:
    """The header alone is an answer: no jobs."""
    answer = SLURM.parse_queue("JOBID|STATE|REASON|NAME\n")
    assert (answer.reports, answer.problem) == ({}, None)


def test_history_is_read_with_exit_codes() -> None:
    """Code and signal are the job's only where it ended by itself: Slurm writes 0:0 for what it killed."""
    reports = SLURM.parse_history(HISTORY).reports
    assert (reports["123"].state, reports["123"].exit_code) == (State.COMPLETED, 0)
    assert (reports["124"].state, reports["124"].exit_code) == (State.CANCELLED, None)
    assert reports["124"].reason == "cancelled by 1000"
    assert (reports["125_3"].state, reports["125_3"].exit_code) == (State.FAILED, 7)
    assert (reports["126"].state, reports["126"].exit_code) == (State.TIMEOUT, None)
    assert (reports["127"].state, reports["127"].exit_code) == (State.FAILED, 128 + 9)
    assert reports["128"].state is State.OUT_OF_MEMORY
    assert reports["129"].state is State.NODE_FAIL
    assert reports["130"].state is State.PREEMPTED
    assert reports["131"].state is State.RUNNING


def test_an_unknown_word_is_told() -> None:
    """The note shows Slurm's own word."""
    report = SLURM.parse_queue("JOBID|STATE|REASON|NAME\n1|HIBERNATING|None|a\n").reports["1"]
    assert report.state is State.UNKNOWN
    assert "HIBERNATING" in str(report.reason)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("error: Batch job submission failed: Invalid account or account/partition combination specified", "--account"),
        ("error: invalid partition specified: nope; Batch job submission failed: Invalid partition name", "--queue"),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)", "limit"),
        ("Batch job submission failed: Requested node configuration is not available", "--nodes"),
        ("Batch job submission failed: Invalid generic resource (gres) specification", "--gpus-per-node"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "--walltime"),
        ("fatal: Could not establish a configuration source", "login node"),
        ("unheard of", "--dry-run"),
    ],
)
def test_hints_for_what_slurm_refuses(said: str, hint: str) -> None:
    """Each common refusal says what to do."""
    assert hint in SLURM.hint(said)


def test_commands(submission: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query of the queue without ids, the history always with ids; a cluster goes along."""
    monkeypatch.setattr("os.getuid", lambda: 1000)
    assert SLURM.queue_command(["1", "2"], None) == [
        "squeue",
        "--user=1000",
        "--states=all",
        "--format=%i|%T|%r|%j",
    ]
    assert "--jobs=1,2" in SLURM.history_command(["1", "2"], None)
    assert SLURM.cancel_command(["1", "2"], "gamma") == ["scancel", "--clusters=gamma", "1", "2"]
    assert SLURM.command_line(submission) == (
        "sbatch",
        "--parsable",
        "--comment=hpcjob-20261129T120000Z-abc123",
        str(submission.script),
    )


def test_a_comment_of_the_users_own_stays(submission: Submission) -> None:
    """A site may read the comment; ours would replace it, and the script's path finds the job as well."""
    own = Submission(
        submission.script,
        submission.jobdir,
        submission.tag,
        submission.submit_dir,
        plan_for("slurm", extra=["--comment=x"]),
    )
    assert not any(word.startswith("--comment") for word in SLURM.command_line(own))


def test_lookup_by_comment_or_script(submission: Submission) -> None:
    """Either mark finds the job, a name with ``|`` in the script's path is no obstacle; a garbled list is an error."""
    table = "JOBID|COMMENT|COMMAND\n4|(null)|/x/script.sh\n"
    assert SLURM.parse_lookup(table, submission) is None
    assert SLURM.parse_lookup(f"{table}5_[1-3]|{submission.tag}|/spool/copy\n", submission) == Submitted("5")
    assert SLURM.parse_lookup(f"{table}6|mine|{submission.script}\n", submission) == Submitted("6")
    with pytest.raises(SchedulerError, match="not a list of jobs"):
        SLURM.parse_lookup("busy\n", submission)


def test_ids_fit_into_one_argument() -> None:
    """20,000 ids are asked for in parts below Linux's 128 KiB for one argument, none lost."""
    ids = [str(10_000_000 + number) for number in range(20_000)]
    parts = list(chunks(ids))
    assert [job_id for part in parts for job_id in part] == ids
    assert all(len(",".join(part)) < 131_072 for part in parts)
    assert len(parts) == 2


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("exit 1", "exit code 1"),
        ("printf '\\xff\\xfe'", "not a list of jobs"),
        (":", "not a list of jobs"),
        ("sleep 60", "no answer"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_query_that_fails_is_a_problem(
    body: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down, silent, garbled, empty, hanging or killed: the answer is not whole, and nothing is raised."""
    fake_command(tmp_path / "bin", "squeue", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    slurm = SlurmScheduler()
    slurm.query_timeout_s = 0.5 if "sleep" in body else 30
    answer = slurm.queue([JobRef("1", tmp_path)])
    assert not answer.reports
    assert problem in str(answer.problem)


def test_without_slurm_the_problem_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such command: told, not raised."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "squeue: no such command" in str(SLURM.queue([JobRef("1", tmp_path)]).problem)


def test_one_call_a_cluster_for_any_number_of_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 jobs of two clusters are two calls."""
    fake_command(tmp_path / "bin", "squeue", "echo 'JOBID|STATE|REASON|NAME'")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    SLURM.queue([JobRef(str(number), tmp_path, "gamma" if number % 2 else None) for number in range(1000)])
    assert len(calls(tmp_path / "bin", "squeue")) == 2


@pytest.mark.parametrize(
    "body",
    [
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
        "echo 'Zero Bytes were transmitted or received' >&2; exit 1",
        "echo 4711; exit 1",
        "echo done",
        "kill -9 $$",
    ],
)
def test_a_lost_answer_is_unclear(
    body: str, submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out (the job may be queued), an id with an error, success without an id: none is a refusal."""
    fake_command(tmp_path / "bin", "sbatch", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    with pytest.raises(UnclearSubmitError):
        SLURM.submit(submission)


def test_a_refusal_says_what_slurm_said(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's words are the message, what to do is the hint."""
    fake_command(
        tmp_path / "bin",
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: nope' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1",
    )
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    with pytest.raises(SchedulerError, match="invalid partition specified: nope") as caught:
        SLURM.submit(submission)
    assert not isinstance(caught.value, UnclearSubmitError)
    assert "sinfo -s" in str(caught.value.hint)


@pytest.mark.parametrize("body", ["exit 0", "kill -TERM $$", "kill -KILL $$"])
def test_a_job_that_is_started_anew_may_end_the_command_that_asks(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``scontrol requeue`` runs in the job: Slurm ends its processes, as a real one did before it had answered."""
    fake_command(tmp_path / "bin", "scontrol", body)
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    assert SLURM.restart(JobRef("5", tmp_path))
    assert calls(tmp_path / "bin", "scontrol") == ["requeue 5"]


def test_a_job_that_may_not_be_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's words, and where the cluster says so."""
    fake_command(tmp_path / "bin", "scontrol", "echo 'Requested operation is presently disabled' >&2; exit 1")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    with pytest.raises(SchedulerError, match="presently disabled") as caught:
        SLURM.restart(JobRef("5", tmp_path))
    assert "JobRequeue" in str(caught.value.hint)

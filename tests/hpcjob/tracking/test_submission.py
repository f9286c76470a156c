"""Submitting: once, looked up when the answer is lost, without a trace when it is refused."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from hpcjob.errors import HpcjobError, InputError, SchedulerError
from hpcjob.job import JobFile
from hpcjob.profile import ClusterProfile
from hpcjob.schedulers.base import UnclearSubmitError
from hpcjob.tracking import jobdir
from hpcjob.tracking.attaching import attach
from hpcjob.tracking.index import read_index
from hpcjob.tracking.submission import UnrecordedError, check, prepare, submit
from hpcjob.tracking.watch import refresh
from tests.hpcjob.jobs import calls, fake_command, plan_for, script_of, with_path

TIMED_OUT = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1"
HEADER = "echo 'JOBID|COMMENT|COMMAND'"
FakeBin = Callable[[str, str], Path]


def script(jobdir: str) -> str:
    """Render a script that only a fake sbatch sees."""
    return f"#!/bin/bash\n# {jobdir}\n"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    """Put a fake command first on PATH; returns the folder of its notes."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", with_path(folder))

    def put(name: str, body: str) -> Path:
        fake_command(folder, name, body)
        return folder

    return put


def nap(seconds: float) -> None:
    """Do not wait between look-ups."""


def test_a_submission_and_its_folder(fake: FakeBin, here: Path) -> None:
    """The folder is private and holds script, job, profile and git; the record leads to it."""
    folder = fake("sbatch", "echo '4711;gamma'")
    record = submit(prepare(plan_for("slurm", name="日本 job"), script))
    assert (record.id, record.server, record.name, record.scheduler) == ("4711", "gamma", "日本 job", "slurm")
    assert re.fullmatch(re.escape(f"{here}/outputs/日本_job/") + r"\d{8}T\d{6}Z-[0-9a-f]{6}", record.directory)
    assert record.jobdir.stat().st_mode & 0o777 == 0o700
    assert (record.jobdir / "script.sh").read_text() == script(record.directory)
    assert {path.name for path in record.jobdir.iterdir()} == {"script.sh", "job.yml", "profile.yml", "git.txt"}
    assert calls(folder, "sbatch") == [f"--parsable --comment=hpcjob-{record.jobdir.name} {record.directory}/script.sh"]
    assert read_index().records == [record]


def test_job_and_profile_are_kept_as_resolved(fake: FakeBin) -> None:
    """job.yml and profile.yml are what their readers read: the run can be repeated from them."""
    fake("sbatch", "echo 4711")
    plan = plan_for("slurm", name="x")
    record = submit(prepare(plan, script))
    job = msgspec.convert(yaml.safe_load((record.jobdir / "job.yml").read_text()), JobFile)
    assert (job.name, job.profile, job.command) == ("x", "slurm", ["true"])
    profile = msgspec.convert(yaml.safe_load((record.jobdir / "profile.yml").read_text()), ClusterProfile)
    assert profile == plan.profile


def test_git_commit_and_changes_are_kept(fake: FakeBin, here: Path) -> None:
    """The commit, the changed files and their difference."""
    fake("sbatch", "echo 4711")
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    (here / "train.py").write_text("a = 1\n")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], check=True)
    (here / "train.py").write_text("a = 2\n")
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    record = submit(prepare(plan_for("slurm"), script))
    assert (record.jobdir / "git.txt").read_text().startswith(head)
    assert " M train.py" in (record.jobdir / "git.txt").read_text()
    assert "+a = 2" in (record.jobdir / "git.diff").read_text()


def test_two_submissions_in_one_second(fake: FakeBin) -> None:
    """Each has a folder of its own."""
    fake("sbatch", "echo 4711")
    first, second = (submit(prepare(plan_for("slurm"), script)) for _ in range(2))
    assert first.directory != second.directory
    assert len(read_index().records) == 2


@pytest.mark.parametrize(
    "body",
    [
        "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1",
        "exit 3",
    ],
)
def test_a_refused_submission_leaves_nothing(fake: FakeBin, here: Path, body: str) -> None:
    """No folder, no record, one call; the message is the scheduler's."""
    folder = fake("sbatch", body)
    with pytest.raises(SchedulerError, match="sbatch: "):
        submit(prepare(plan_for("slurm"), script))
    assert not list(here.iterdir())
    assert not read_index().records
    assert len(calls(folder, "sbatch")) == 1


def test_a_refused_submission_leaves_other_outputs_alone(fake: FakeBin, here: Path) -> None:
    """Only what this submission made is removed."""
    fake("sbatch", "exit 3")
    (here / "outputs" / "job" / "earlier").mkdir(parents=True)
    with pytest.raises(SchedulerError):
        submit(prepare(plan_for("slurm"), script))
    assert [path.name for path in (here / "outputs" / "job").iterdir()] == ["earlier"]


def test_no_sbatch_here(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without Slurm: one line, nothing left."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(SchedulerError, match="sbatch: no such command") as caught:
        submit(prepare(plan_for("slurm"), script))
    assert "login node" in str(caught.value.hint)
    assert not list(here.iterdir())


def test_a_lost_answer_is_looked_up(fake: FakeBin) -> None:
    """sbatch timed out, the job is in the queue: found by its mark, submitted once, recorded as any other."""
    folder = fake("sbatch", TIMED_OUT)
    fake("squeue", f'{HEADER}; sed -n "s/.*--comment=\\([^ ]*\\) .*/4711|\\1|x/p" {folder}/sbatch.calls')
    told: list[str] = []
    record = submit(prepare(plan_for("slurm"), script), tell=told.append, sleep=nap)
    assert record.id == "4711"
    assert len(calls(folder, "sbatch")) == 1
    assert "Socket timed out" in told[0]


def test_a_script_that_has_started_tells_its_id(fake: FakeBin) -> None:
    """The queue need not be asked, and need not know: the name of the job's log is enough."""
    folder = fake("sbatch", f"touch $(dirname ${{@: -1:1}})/4711_job.out; {TIMED_OUT}")
    fake("squeue", "exit 1")
    assert submit(prepare(plan_for("slurm"), script), sleep=nap).id == "4711"
    assert not calls(folder, "squeue")


def test_a_frozen_controller_that_goes_on_is_waited_for(fake: FakeBin, tmp_path: Path) -> None:
    """The queue does not answer at first, then not with the job, then with it."""
    folder = fake("sbatch", TIMED_OUT)
    fake(
        "squeue",
        f"case $(wc -l <{folder}/squeue.calls) in\n1) exit 1;;\n2) {HEADER};;\n"
        f'*) {HEADER}; sed -n "s/.*--comment=\\([^ ]*\\) .*/4711|\\1|x/p" {folder}/sbatch.calls;;\nesac',
    )
    assert submit(prepare(plan_for("slurm"), script), sleep=nap).id == "4711"


def test_a_lost_answer_without_a_job_is_a_refusal(fake: FakeBin, here: Path) -> None:
    """Two whole answers without the job: it was not submitted, nothing is left; never submitted again by itself."""
    folder = fake("sbatch", TIMED_OUT)
    fake("squeue", HEADER)
    with pytest.raises(SchedulerError, match="not there") as caught:
        submit(prepare(plan_for("slurm"), script), sleep=nap)
    assert not isinstance(caught.value, UnclearSubmitError)
    assert len(calls(folder, "sbatch")) == 1
    assert not list(here.iterdir())


@pytest.mark.parametrize("queue", ["exit 1", "echo busy", ":"])
def test_when_nobody_answers_the_user_is_told_to_look(fake: FakeBin, here: Path, queue: str) -> None:
    """Neither sbatch nor squeue: the folder stays, for the job may start; the message says what to do."""
    folder = fake("sbatch", TIMED_OUT)
    fake("squeue", queue)
    with pytest.raises(UnclearSubmitError, match="not known") as caught:
        submit(prepare(plan_for("slurm"), script), sleep=nap)
    assert "do not submit again" in str(caught.value.hint)
    assert "hpcjob attach ID" in str(caught.value.hint)
    assert len(calls(folder, "sbatch")) == 1
    assert list(here.glob("outputs/job/*/script.sh"))


def test_an_account_is_required_where_the_profile_says_so(fake: FakeBin, here: Path) -> None:
    """Refused before anything is written."""
    folder = fake("sbatch", "echo 4711")
    with pytest.raises(InputError, match="account: none given") as caught:
        submit(prepare(plan_for("slurm", account="--account", account_required=True), script))
    assert "--account" in str(caught.value.hint)
    assert not calls(folder, "sbatch")
    assert not list(here.iterdir())


def test_a_folder_that_nodes_do_not_see_is_refused(here: Path) -> None:
    """Also by a link: the real path counts."""
    plan = plan_for("slurm", not_shared=[here])
    link = here.parent / "link"
    link.symlink_to(here)
    with pytest.raises(InputError, match="does not share") as caught:
        submit(prepare(plan, script, link))
    assert "shared file system" in str(caught.value.hint)
    check(prepare(plan, script, here.parent))
    assert not list(here.iterdir())


def test_outputs_that_lead_to_a_folder_that_nodes_do_not_see_is_refused(here: Path, tmp_path: Path) -> None:
    """The job directory itself counts, not only the folder it was submitted from."""
    away = tmp_path / "scratch"
    away.mkdir()
    (here / "outputs").symlink_to(away)
    with pytest.raises(InputError, match="does not share"):
        submit(prepare(plan_for("slurm", not_shared=[away]), script))
    assert not list(away.iterdir())
    (here / "outputs").unlink()
    (here / "outputs").symlink_to("outputs")
    with pytest.raises(InputError, match="loop"):
        check(prepare(plan_for("slurm", not_shared=[away]), script))


def test_a_number_in_a_banner_is_not_taken_for_the_job(fake: FakeBin) -> None:
    """Two candidates: the job is looked up by its mark, and found."""
    bin_ = fake("sbatch", "echo 12345; echo 777")
    fake("squeue", f"{HEADER}; echo \"12345|$(grep -o 'hpcjob-[^ ]*' {bin_}/sbatch.calls | head -1)|/spool/x\"")
    assert submit(prepare(plan_for("slurm"), script), sleep=nap).id == "12345"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("plain", "plain"),
        ("日本 語", "日本_語"),
        ("100% $HOME: 'a' \"b\" *?\\", "100%__HOME___a___b_____".replace("%", "_")),
        ("../../etc", "_.._etc"),
        ("/abs", "_abs"),
        (".hidden", "hidden"),
        ("..", "job"),
        ("a\nb\x1b[2J", "a_b_[2J"),
        ("日" * 200, "日" * 33),
    ],
)
def test_folder_names(name: str, folder: str) -> None:
    """A name becomes one folder below outputs, whatever it holds."""
    assert jobdir.folder_name(name) == folder
    assert len(jobdir.folder_name(name).encode()) <= 100


def test_a_job_folder_that_cannot_be_made(here: Path) -> None:
    """A file called ``outputs``: one line, nothing submitted, the file stays."""
    (here / "outputs").write_text("mine")
    with pytest.raises(HpcjobError, match="nothing was submitted"):
        submit(prepare(plan_for(), script_of("true")))
    assert (here / "outputs").read_text() == "mine"


def test_an_index_that_fails_after_the_submission(
    fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs: the message has its id and the line that records it again."""
    state = Path(os.environ["XDG_STATE_HOME"])
    fake("sbatch", f"rm -r {state}; touch {state}; echo 4711")
    with pytest.raises(UnrecordedError, match="job 4711 is submitted, but could not be recorded") as caught:
        submit(prepare(plan_for("slurm"), script))
    assert "hpcjob attach 4711" in str(caught.value.hint)
    assert str(state) in caught.value.message


def test_attach_takes_over_a_job_submitted_by_hand(fake: FakeBin, here: Path) -> None:
    """Known to the queue, its folder found below outputs by its id."""
    fake("squeue", "echo 'JOBID|STATE|REASON|NAME'; echo '4711|RUNNING|None|by hand'")
    made = here / "outputs" / "x" / "20261129T120000Z-4711"
    made.mkdir(parents=True)
    record = attach("4711", plan_for("slurm").profile)
    assert (record.name, record.jobdir, record.attached, record.log) == ("by hand", made, True, None)
    with pytest.raises(InputError, match=r"^job 4711 is recorded already, as 'by hand'\nhpcjob status 4711; to record"):
        attach("4711", plan_for("slurm").profile, name="again")


def test_attach_with_a_log(fake: FakeBin, here: Path) -> None:
    """The log's folder is the job's; a job that ended long ago is taken with its log alone."""
    fake("squeue", "echo 'JOBID|STATE|REASON|NAME'")
    fake("sacct", "echo 'JobID|State|ExitCode|JobName'")
    (here / "logs").mkdir()
    (here / "logs" / "slurm-4711.out").write_text("hello\n")
    record = attach("4711", plan_for("slurm").profile, log=Path("logs/slurm-4711.out"), name="old")
    assert (record.name, record.jobdir, record.log) == ("old", here / "logs", str(here / "logs" / "slurm-4711.out"))


def test_attach_refuses_what_is_no_job(fake: FakeBin, here: Path) -> None:
    """A bad id, an unknown job, a log that is not there, a scheduler that does not answer."""
    profile = plan_for("slurm").profile
    with pytest.raises(InputError, match="not a job id"):
        attach("../../x", profile)
    with pytest.raises(InputError, match="no such log"):
        attach("4711", profile, log=Path("nowhere"))
    (here / "etc").mkdir()
    with pytest.raises(
        InputError, match=r"^etc: a folder with neither script.sh nor a log of job 4711\nname the job's"
    ):
        attach("4711", profile, log=Path("etc"))
    with pytest.raises(InputError, match=r"^/dev/zero: a pipe, a socket or a device, not a log file"):
        attach("4711", profile, log=Path("/dev/zero"))
    with pytest.raises(InputError, match="'latest' is the newest job"):
        attach("4711", profile, name="latest")
    fake("squeue", "echo 'JOBID|STATE|REASON|NAME'")
    fake("sacct", "echo 'JobID|State|ExitCode|JobName'")
    with pytest.raises(HpcjobError, match="does not know job 4711"):
        attach("4711", profile)
    fake("squeue", "exit 1")
    with pytest.raises(SchedulerError, match="squeue"):
        attach("4711", profile)
    assert not read_index().records


def test_attach_a_process_of_this_machine(here: Path) -> None:
    """A script started by hand is seen to run and to end."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        record = attach(str(process.pid), plan_for("local").profile)
        assert refresh([record], read_index())[record].state.value == "RUNNING"
    finally:
        process.kill()
        process.wait()
    assert refresh([record], read_index())[record].state.value == "FAILED"

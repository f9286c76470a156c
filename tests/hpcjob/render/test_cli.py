"""``hpcjob render`` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcjob.cli import main

JOB = "command: [python, x.py]\nname: mine\n"


@pytest.fixture
def job(own_place: Path) -> Path:
    """A job file in an empty folder."""
    path = own_place / "job.yml"
    path.write_text(JOB)
    return path


def test_without_a_job_file_it_prints_the_2_7b_run(own_place: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """``hpcjob render --profile abci --nodes 2`` is a complete PBS script; what to know of it is on stderr."""
    assert main(["render", "--profile", "abci", "--nodes", "2"]) == 0
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"#!/bin/bash\n#PBS -N ")
    assert b"-l select=2" in out
    assert b"hpcjob: note: no account given; abci3 refuses" in err


def test_output_writes_an_executable_file_and_replaces_none(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that was edited by hand is not lost: an existing file is refused without --force."""
    assert main(["render", "job.yml", "-p", "lab", "-o", "job.sh"]) == 0
    assert "hpcjob: wrote job.sh" in capsys.readouterr().err
    written = Path("job.sh")
    assert written.stat().st_mode & 0o777 == 0o755
    subprocess.run(["bash", "-n", written], check=True)
    written.write_text("mine")
    assert main(["render", "job.yml", "-p", "lab", "-o", "job.sh"]) == 2
    assert written.read_text() == "mine"
    assert "--output: job.sh exists" in capsys.readouterr().err
    assert main(["render", "job.yml", "-p", "lab", "-o", "job.sh", "--force"]) == 0
    assert written.read_text().startswith("#!/bin/bash\n#SBATCH")
    assert main(["render", "job.yml", "-p", "lab", "-o", "no/folder.sh"]) == 2
    assert "--output: no/folder.sh: No such file or directory" in capsys.readouterr().err


def test_json_holds_script_and_plan(job: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """For programs: the same script, the notes, and every decision."""
    assert main(["render", "job.yml", "-p", "lab", "--nodes", "2"]) == 0
    script = capsysbinary.readouterr().out.decode()
    assert main(["render", "job.yml", "-p", "lab", "--nodes", "2", "--json"]) == 0
    document = json.loads(capsysbinary.readouterr().out)
    assert document["script"] == script
    assert document["plan"]["nodes"] == 2
    assert document["plan"]["profile"]["name"] == "lab"
    assert {*document} == {"script", "notes", "plan"}
    places = document["plan"]["places"]
    assert (places["nodes"], places["command"]) == ("--nodes", "job.yml:1")
    of_profile = [key for key in places if key.startswith("env.")]
    assert of_profile == [f"env.{name}" for name in document["plan"]["profile"]["env"]], "in one order in every process"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--launcher", "srun"], "launcher: srun on abci3"),
        (["--name", "a/b"], "name: pbs cannot take 'a/b'"),
        (["--env", "HF_TOKEN=x"], "env.HF_TOKEN: a secret"),
        (["--template", "none.j2"], "none.j2: "),
    ],
)
def test_mistakes_are_two_lines(job: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    """What is wrong and what to do, no traceback, nothing on stdout."""
    assert main(["render", "job.yml", "-p", "abci3", *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    wrong = [line for line in err.split("\n") if not line.startswith("hpcjob: note")]
    assert words in wrong[0]
    assert len(wrong) == 3


def test_script_is_utf8_whatever_the_locale(job: Path) -> None:
    """A login node in the C locale prints Japanese names as they are."""
    (job.parent / "ja.yml").write_text("name: 学習\ncommand: [echo, 学習]\n", encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": "0", "HOME": str(job.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "hpcjob", "render", "ja.yml", "-p", "lab"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '#SBATCH --job-name="学習"\n'.encode() in done.stdout


def test_a_name_of_which_nothing_is_left_is_told(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PBS takes ASCII alone: two Japanese names of one length would look alike in qstat."""
    for name in ("日本語の実験", "日本語の試験"):
        assert main(["render", "job.yml", "-p", "abci3", "--name", name, "--account", "gxx"]) == 0
    out, err = capsys.readouterr()
    shown = [line.split()[2] for line in out.splitlines() if line.startswith("#PBS -N ")]
    assert len(set(shown)) == 2
    for name, one in zip(("日本語の実験", "日本語の試験"), shown, strict=True):
        assert f"note: name: pbs does not accept '{name}' and shows {one};" in err
    assert main(["render", "job.yml", "-p", "lab", "--name", "日本語の実験"]) == 0
    assert "note: name:" not in capsys.readouterr().err


def test_rendering_imports_no_trainer(job: Path) -> None:
    """The login-node command stays light."""
    code = (
        "import sys; from hpcjob.cli import main; main(['render', 'job.yml', '-p', 'lab']);"
        "heavy = {'torch', 'deepspeed', 'transformers', 'pydantic', 'submitit', 'numpy', 'rich'} & {*sys.modules};"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True, cwd=job.parent)

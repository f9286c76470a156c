"""``hpcjob env create``: the script, run with stub modules and a stub Python that writes down what it is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.errors import InputError
from hpcjob.setup_env import wheel_of
from tests.hpcjob.jobs import with_path
from tests.hpcjob.render.world import MODULES

SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")

# A python that makes virtual environments of itself, and installs nothing.
PYTHON = """#!/bin/bash
echo "${0##*/} $* [${LOADEDMODULES-} ${DS_BUILD_OPS-}]" >>"$CALLS"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"$FAIL_ON"*) echo 'ERROR: No matching distribution found' && exit 1 ;;
  "-c import sys;"*) exit "${OLD-0}" ;;
esac
"""


def run(here: Path, script: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run a script in the folder; its code, what it said, and the calls of the stub since the last run."""
    calls = here / "calls"
    calls.write_text("")
    (here / "bin").mkdir(exist_ok=True)
    (here / "bin" / "python3").write_text(PYTHON)
    (here / "bin" / "python3").chmod(0o755)
    (here / "modules.sh").write_text(MODULES)
    environment = {"PATH": f"{here}/bin:/usr/bin:/bin", "CALLS": str(calls), "FAIL_ON": "nothing", **variables}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines()


def script_of(capsys: pytest.CaptureFixture[str], here: Path, *arguments: str) -> str:
    """Return the script for a profile with the modules of the stub."""
    words = ["env", "create", "-p", "abci3", "--dest", str(here / "my venv"), "--project", "hpcjob[train]==0.1.0"]
    assert main([*words, "--set", f"modules.init={here}/modules.sh", "--set", "paths.not_shared=[]", *arguments]) == 0
    return capsys.readouterr().out


def test_a_checkout_that_is_not_installed(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No metadata say which torch it wants: any."""

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert " torch --index-url https://download.pytorch.org/whl/cu126" in script_of(capsys, here)


def test_from_nothing_to_the_line_of_the_job_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Modules, venv, torch for the profile's CUDA from PyTorch's index, DeepSpeed, the project; then the key."""
    code, said, calls = run(here, script_of(capsys, here))
    assert code == 0, said
    modules = "[cuda/12.6/12.6.1:cudnn/9.5/9.5.1:nccl/2.25/2.25.1-1:hpcx/2.20 ]"
    pip = "python -m pip install --no-input --disable-pip-version-check"
    assert calls[1:5] == [
        f"python3 -m venv {here}/my venv {modules}",
        f"{pip} --upgrade pip {modules}",
        f"{pip} torch>=2.6 --index-url https://download.pytorch.org/whl/cu126 {modules}",
        f"{pip} deepspeed<0.20,>=0.19.8 {modules.replace(' ]', ' 0]')}",
    ]
    assert calls[5] == f"{pip} hpcjob[train]==0.1.0 {modules.replace(' ]', ' 0]')}"
    assert "import deepspeed, neoxlite, torch" in calls[6]
    assert said.endswith(f'hpcjob: ready. In the job file:\npython: {{venv: "{here}/my venv"}}\n')


@pytest.mark.parametrize("name", ["a: b, {c} #1", 'it\'s "so"', "環境", "back\\slash", "$HOME `id`", "plain-1.2"])
def test_the_last_line_is_what_a_job_file_takes(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """YAML that reads back as the folder, whatever its name."""
    assert main(["env", "create", "-p", "local", "--dest", name, "--set", "paths.not_shared=[]"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    said = subprocess.run(["bash", "-c", last], capture_output=True, text=True, check=True).stdout
    assert yaml.safe_load(said) == {"python": {"venv": str(here / name)}}
    assert ('"' in said) == (name != "plain-1.2")


def test_it_goes_on_where_it_stopped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first fault ends it with one line; what was done is not done again; a change is, with all that follows."""
    script = script_of(capsys, here)
    code, said, calls = run(here, script, FAIL_ON="deepspeed<")
    assert code == 1
    assert len(calls) == 5
    assert re.fullmatch(
        rf"hpcjob: deepspeed failed, see {re.escape(str(here))}/my venv\.setup/deepspeed\.log; "
        "to do: look at the log: .*; then run this again",
        said.splitlines()[-1],
    )
    assert "No matching distribution" in (here / "my venv.setup" / "deepspeed.log").read_text()
    code, said, calls = run(here, script)
    assert code == 0
    assert [line.split()[-1] for line in said.splitlines() if "was done" in line] == ["done"] * 3
    words = [call.split()[6 if " pip " in call else 1] for call in calls]
    assert words == ["-c", "deepspeed<0.20,>=0.19.8", "hpcjob[train]==0.1.0", "-c"]
    code, said, calls = run(here, script_of(capsys, here, "--cuda", "12.4"))
    assert (code, len(calls)) == (0, 5)
    assert "whl/cu124" in calls[1]
    (here / "my venv" / "bin" / "python").unlink()
    assert len(run(here, script)[2]) == 7


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({"OLD": "1"}, [], "hpcjob: python3 is older than 3.10 (--python PATH, or a python module in the profile)"),
        ({}, ["--python", "python9"], "hpcjob: there is no python9 (--python PATH, or a python module in the profile)"),
        (
            {},
            ["--set", "modules.load=[missing/1]"],
            "hpcjob: module missing/1 did not load: Unable to locate a modulefile for 'missing/1'",
        ),
        ({"FAIL_ON": "--upgrade"}, [], "hpcjob: pip failed, see "),
    ],
)
def test_faults(
    here: Path, capsys: pytest.CaptureFixture[str], variables: dict[str, str], arguments: list[str], message: str
) -> None:
    """One line, before anything is made on top."""
    code, said, _ = run(here, script_of(capsys, here, *arguments), **variables)
    assert code == 1
    assert said.splitlines()[-1].rstrip().startswith(message)


def test_run(here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--run runs the script, keeps it beside its notes, and gives its code back."""
    run(here, "true")
    monkeypatch.setenv("PATH", with_path(here / "bin"))
    monkeypatch.setenv("CALLS", str(here / "calls"))
    for fault, code in (("torch", 1), ("nothing", 0)):
        monkeypatch.setenv("FAIL_ON", fault)
        assert main(["env", "create", "-p", "local", "--run", "--set", "paths.not_shared=[]"]) == code
    assert f"python: {{venv: {here}/venv-local}}" in capfd.readouterr().out
    assert (here / "venv-local.setup" / "setup.sh").stat().st_mode & 0o777 == 0o700
    assert "https://download.pytorch.org/whl/cpu" in (here / "calls").read_text()


@pytest.mark.parametrize("profile", ["abci3", "local"])
def test_scripts_are_clean(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """shellcheck has nothing to say."""
    assert main(["env", "create", "-p", profile, "--dest", "/group/me/venv"]) == 0
    (tmp_path / "setup.sh").write_text(capsys.readouterr().out)
    done = subprocess.run([SHELLCHECK, tmp_path / "setup.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("cuda", "wheel"),
    [
        ("12.6", "12.6"),
        ("12.5", "12.4"),
        ("12.1", "12.4"),
        ("11.8", "11.8"),
        ("11.2", "11.8"),
        ("13.2", "13.0"),
        ("12", "12.9"),
        ("12.10.1", "12.9"),
    ],
)
def test_wheels(cuda: str, wheel: str) -> None:
    """PyTorch's wheels for 11.8, 12.4, 12.6, 12.8, 12.9 and 13.0: the newest that is not newer than the system."""
    assert wheel_of(cuda) == wheel


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "lab"], "lab declares no CUDA version (versions.cuda)\ngive it: --cuda 12.6"),
        (["-p", "lab", "--cuda", "10.2"], "--cuda: PyTorch has no wheels for CUDA 10.2\nit has 11.8, 12.4"),
        (["-p", "lab", "--cuda", "new"], "--cuda: 'new' is not a version\n"),
        (["-p", "lab", "--cuda", "12.4", "--torch", "latest"], "--torch: 'latest' is not a version\n"),
        (["-p", "abci3", "--dest", "/tmp/venv"], "--dest: /tmp/venv: abci3 does not share /tmp with its compute nodes"),
        (["-p", "abci3", "--set", "modules.lod=[a]", "--dest", "/g/v"], "--set modules.lod: profile has no key"),
    ],
)
def test_refusals(arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be known or cannot work is refused before a script is printed."""
    assert main(["env", "create", *arguments]) == InputError.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.replace("\n        ", "\n").removeprefix("hpcjob: ").startswith(message)

"""``hpcjob profile check``: rows, codes and the profile it writes, against emulated PBS and PJM and stub modules."""

from __future__ import annotations

import grp
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.loading.profiles import read_profile
from tests.emulators import Emulator
from tests.hpcjob.jobs import fake_command, with_path

MODULES = """
module() {
  case "$*" in
    "-t avail cuda/12.6/12.6.1") printf '%s\\n' '/apps/modulefiles:' 'cuda/12.6/12.6.1(default)' ;;
    "-t avail hpcx/2.20") [[ ${LOADEDMODULES-} == *cuda* ]] && echo 'hpcx/2.20' ;; # seen once cuda is loaded
    "-t avail nccl"*) printf '%s\\n' 'nccl/' 'nccl/2.27/2.27.7-1' 'nccl/2.28/2.28.3-1' ;;
    "-t avail cudnn/9.5/9.5.1") printf '%s\\n' 'cudnn/9.5/9.5.1' ;;
    load*) LOADEDMODULES=${LOADEDMODULES-}:$2 ;;
  esac
} 2>&1
"""


@pytest.fixture
def site(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make an emulated cluster and a profile `site` of it, with stub modules and a stub nvcc."""
    made: list[Emulator] = []

    def make(system: Literal["pbs", "pjm"], profile: str, own: dict[str, Any], **switches: Any) -> Emulator:
        emulator = Emulator(here / "cluster", system)
        made.append(emulator)
        emulator.set(**switches)
        tools = here / "tools"
        tools.mkdir()
        (tools / "nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
        (tools / "nvcc").chmod(0o755)
        (here / "modules.sh").write_text(MODULES)
        monkeypatch.setenv("PATH", f"{tools}:{with_path(emulator.bin)}")
        (here / "cluster_profiles").mkdir()
        text = {
            "extends": profile,
            "title": "a site",
            "launcher": {"mpi": False},
            "ssh": {"access": "none", "directive": None},
        }
        (here / "cluster_profiles" / "site.yml").write_text(yaml.safe_dump({**text, **own}))
        return emulator

    yield make
    for emulator in made:
        emulator.end()


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the rows by what they are about."""
    capsys.readouterr()
    code = main(["profile", "check", "-p", "site", "--json", *arguments])
    found = json.loads(capsys.readouterr().out)["rows"]
    return code, {row["what"]: row for row in found}


def test_pbs(site: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is the same, what differs and what is to be done; nothing is submitted."""
    emulator = site("pbs", "abci3", {"modules": {"init": str(here / "modules.sh")}})
    code, found = rows(capsys)
    assert code == 64
    assert found["scheduler"]["here"] == "PBS 2022.1.6"
    assert found["limits.array"]["verdict"] == "same"
    assert (found["queue rt_HF"]["verdict"], found["queue rt_HF"]["here"]) == ("same", "128 nodes, 168:00:00, 8 GPUs")
    assert found["queue rt_HG"] == {
        "what": "queue rt_HG",
        "profile": "1 nodes, 168:00:00, 1 GPUs",
        "here": "1 nodes, 96:00:00, 1 GPUs",
        "todo": "queues: {rt_HG: ...}, or --write",
        "verdict": "differs",
    }
    assert found["queue rt_HC"]["here"] == "accepts no jobs now"
    assert (found["other queues"]["here"], found["other queues"]["verdict"]) == ("R1234", "note")
    assert {name: found[f"module {name}"]["here"] for name in ("cuda/12.6/12.6.1", "cudnn/9.5/9.5.1", "hpcx/2.20")} == {
        "cuda/12.6/12.6.1": "is there",
        "cudnn/9.5/9.5.1": "is there",
        "hpcx/2.20": "is there",
    }
    assert found["module nccl/2.25/2.25.1-1"]["here"] == "not found"
    assert found["module nccl/2.25/2.25.1-1"]["todo"].endswith("near: nccl/2.27/2.27.7-1, nccl/2.28/2.28.3-1")
    assert (found["cuda"]["profile"], found["cuda"]["here"], found["cuda"]["verdict"]) == ("12.6", "12.4", "differs")
    assert found["account"]["here"].startswith("yours: ")
    assert emulator.jobs == {}


@pytest.mark.ci
def test_the_profile_that_is_written(site: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It extends the checked one, says command and date of each value, is not overwritten; the next check is equal."""
    site("pbs", "abci3", {"modules": {"init": str(here / "modules.sh"), "load": ["cuda/12.6/12.6.1"]}})
    target = here / "cluster_profiles" / "found.yml"
    assert rows(capsys, "--write", str(target))[0] == 64
    text = target.read_text()
    assert f"on {socket.gethostname()}, " in text.splitlines()[0]
    assert '\nversions: {cuda: "12.4"} # nvcc --version after the modules, 20' in text
    assert "\nqueues: # qstat -Qf, 20" in text
    profile, _ = read_profile(str(target))
    assert profile.extends == str(here / "cluster_profiles" / "site.yml")
    assert [(size.nodes, size.walltime) for size in profile.queues["rt_HG"].sizes] == [(1, "96:00:00")]
    assert not profile.queues["rt_HC"].auto
    assert profile.node.gpus == 8
    assert main(["profile", "check", "-p", str(target)]) == 0
    assert "nothing differs\n" in capsys.readouterr().out
    assert main(["profile", "check", "-p", "site", "--write", str(target)]) == 2
    assert f"--write: {target} exists\n" in capsys.readouterr().err
    assert main(["profile", "check", "-p", "site", "--write", str(here / "cluster_profiles/site.yml"), "--force"]) == 2
    assert "is the profile that is checked" in capsys.readouterr().err
    assert main(["profile", "check", "-p", "site", "--write", str(target), "--force"]) == 64


def test_the_place_of_a_written_profile(
    site: Any, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a file it goes to the user's own profiles, under the name of the one checked."""
    site("pjm", "wisteria", {"modules": {"init": None, "use": [], "load": []}})
    assert main(["profile", "check", "-p", "site", "--write"]) == 64
    assert (tmp_path / "config" / "hpcjob" / "cluster_profiles" / "site.yml").is_file()


def test_a_profile_of_a_scheduler_that_did_not_answer(
    site: Any, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written says little then, and that is said."""
    site("pjm", "wisteria", {"modules": {"init": None, "use": [], "load": []}})
    note = "hpcjob: note: the scheduler reported no queues: the profile has only those that it extends\n"
    assert main(["profile", "check", "-p", "site", "--write", str(tmp_path / "a.yml")]) == 64
    assert note not in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["profile", "check", "-p", "site", "--write", str(tmp_path / "b.yml")]) == 64
    assert note in capsys.readouterr().err


def test_pjm(site: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a list whose columns are a site's own, names alone are believed."""
    site("pjm", "wisteria", {"modules": {"init": None, "use": [], "load": []}, "versions": {"cuda": "12.4"}})
    code, found = rows(capsys)
    assert code == 64
    assert found["queue regular-a"]["here"] == "exists (limits unknown)"
    assert found["queue interactive-a"]["here"] == "no such queue"
    assert found["queue interactive-a"]["todo"].startswith("pjstat --rsc lists them: ")


def test_an_account_that_is_not_yours(
    site: Any, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configured account is looked for among the groups of this user."""
    site("pjm", "wisteria", {"modules": {"init": None, "use": [], "load": []}, "versions": {"cuda": None}})
    monkeypatch.setenv("HPCJOB_ACCOUNT", "nobodys")
    assert rows(capsys)[1]["account"]["verdict"] == "differs"
    monkeypatch.setenv("HPCJOB_ACCOUNT", grp.getgrgid(os.getgid()).gr_name)
    assert rows(capsys)[1]["account"]["verdict"] == "same"


def test_miyabis_own_qstat(site: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes neither -Q nor --version: its list of resources is asked, and what failed is a row."""
    own = {"modules": {"init": None, "load": []}, "node": {"arch": os.uname().machine}}
    site("pbs", "miyabi", own, site="miyabi", server="opbs")
    code, found = rows(capsys)
    assert code == 0
    assert {found[f"queue {name}"]["verdict"] for name in ("debug-g", "short-g", "regular-g", "interact-g")} == {"same"}
    assert "command qstat -Qf" in found


@pytest.mark.ci
@pytest.mark.parametrize("switch", ["down", "hung"])
def test_a_scheduler_that_does_not_answer(
    site: Any, here: Path, capsys: pytest.CaptureFixture[str], switch: str
) -> None:
    """One row says so; the others are there all the same, each within its time."""
    site("pbs", "abci3", {"modules": {"init": None, "load": []}, "versions": {"cuda": None}}, **{switch: True})
    code, found = rows(capsys, "--timeout", "2")
    assert code == 64
    assert found["scheduler"]["verdict"] == "differs"
    assert "qstat" in found["scheduler"]["here"]
    assert found["scheduler"]["todo"].startswith("run this on a login node of a site")
    assert found.keys() & {"python", "programs"}


def test_a_module_command_that_is_missing(site: Any, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each module is a row that says why it is not known; alone that is code 65."""
    site(
        "pbs",
        "miyabi",
        {"modules": {"init": str(here / "nowhere.sh"), "load": ["a/1"]}, "node": {"arch": os.uname().machine}},
        site="miyabi",
    )
    code, found = rows(capsys)
    assert code == 65
    assert found["module a/1"]["verdict"] == "unknown"
    assert "nowhere.sh" in found["module a/1"]["here"]


def test_this_machine(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile `local` has nothing that could differ; a table and a line."""
    assert main(["profile", "check", "-p", "local"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["WHAT", "PROFILE", "SAYS", "HERE", "IS", "WHAT", "TO", "DO"]
    assert out.endswith("nothing differs\n")


def test_no_profile(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None given, none in the environment or the configuration."""
    assert main(["profile", "check"]) == 2
    assert capsys.readouterr().err.startswith("hpcjob: no profile given\n")


@pytest.mark.parametrize(
    ("gres", "here_is", "node"),
    [
        ("gpu:a100:8(S:0-1)", "A100 40GB", {"gpu": "A100 40GB", "gpu_memory_gib": 40, "peak_tflops": 312}),
        ("gpu:h100:8(S:0-1)", "h100", {"gpu": "h100"}),
        ("gpu:a100_80gb:8", "a100_80gb", {"gpu": "a100_80gb"}),
        ("gpu:8", "", {}),
        ("gpu:a100:4,gpu:v100:4", "", {}),
    ],
)
def test_the_model_of_a_gpu_is_the_one_that_was_seen(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gres: str,
    here_is: str,
    node: dict[str, object],
) -> None:
    """By the type of Slurm's gres (gres.conf(5)): another model, or none, is not given the peak of the profile's."""
    tools, target = here / "tools", here / "found.yml"
    fake_command(tools, "sinfo", f"[[ $1 == --version ]] && echo slurm 24.05.4 || echo 'gpu|64|512000|{gres}'")
    fake_command(
        tools, "scontrol", "[[ $2 == config ]] || echo PartitionName=gpu MaxNodes=16 MaxTime=7-00:00:00 State=UP"
    )
    fake_command(tools, "sacctmgr", "echo mine")
    monkeypatch.setenv("PATH", with_path(tools))
    own = {"gpus": 8, "gpu": "A100 40GB", "gpu_memory_gib": 40, "peak_tflops": 312}
    queue = {"sizes": [{"nodes": 16, "walltime": "7-00:00:00"}]}
    (here / "cluster_profiles").mkdir()
    (here / "cluster_profiles" / "site.yml").write_text(
        yaml.safe_dump({"extends": "lab", "node": own, "queues": {"gpu": queue}})
    )
    found = rows(capsys, "--write", str(target))[1]["queue gpu"]
    assert found["verdict"] == ("same" if here_is in ("A100 40GB", "") else "differs")
    assert found["here"].endswith(f"8 GPUs, {here_is}".rstrip(", "))
    written = yaml.safe_load(target.read_text())["queues"]["gpu"]["node"]
    assert written == {"gpus": 8, **node, "cores": 64, "memory_gib": 500.0}


def test_a_written_profile_without_the_peak_of_its_gpus_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each MFU would be missing, which is seen weeks later."""
    fake_command(here / "tools", "sinfo", "[[ $1 == --version ]] && echo slurm 24.05.4 || echo 'gpu|64|512000|gpu:8'")
    fake_command(here / "tools", "scontrol", "[[ $2 == config ]] || echo PartitionName=gpu MaxNodes=16")
    monkeypatch.setenv("PATH", with_path(here / "tools"))
    main(["profile", "check", "-p", "lab", "--write", "found.yml"])
    assert "note: found.yml has no peak_tflops for the GPUs of gpu: " in capsys.readouterr().err

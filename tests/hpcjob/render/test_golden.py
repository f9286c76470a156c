"""Every profile with every launcher renders to the script that was looked at, and that bash and shellcheck accept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcjob.plan import Plan
from hpcjob.render import render
from tests.hpcjob.render import golden
from tests.hpcjob.render.plans import GOLDEN, PROFILES, pairs

CASES = golden.cases()


def test_every_profile_is_there_and_nothing_else() -> None:
    """Each shipped profile has golden scripts, each of them has a case."""
    assert {name for name, _ in pairs()} == {*PROFILES}
    assert {path.stem for path in GOLDEN.glob("*.sh")} == {*CASES}


@pytest.mark.parametrize("name", CASES)
def test_script_is_the_golden_one(name: str) -> None:
    """A change of a script is seen before it is committed (``python -m tests.hpcjob.render.golden`` writes them)."""
    assert golden.text(name, CASES[name]) == (GOLDEN / f"{name}.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["lab.steps", "abci3.mpirun"])
def test_rendering_is_pure(name: str) -> None:
    """The same plan gives the same bytes, in this process and in one with another hash seed and locale."""
    code = (
        "import sys; from tests.hpcjob.render.golden import cases; from hpcjob.render import render;"
        "sys.stdout.buffer.write(render(cases()[sys.argv[1]]).encode())"
    )
    environment = {"PYTHONHASHSEED": "7", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    root = Path(__file__).parents[3]
    other = subprocess.run(
        [sys.executable, "-c", code, name], env=environment, cwd=root, capture_output=True, check=True
    ).stdout
    assert render(CASES[name]) == render(CASES[name]) == other.decode()


@pytest.mark.ci
@pytest.mark.parametrize("where", PROFILES)
def test_bash_and_shellcheck_accept_every_script(tmp_path: Path, where: str) -> None:
    """``bash -n`` and shellcheck (all severities, nothing switched off) find nothing."""
    files = []
    for name, case in CASES.items():
        if not name.startswith(f"{where}."):
            continue
        files.append(tmp_path / f"{name}.sh")
        files[-1].write_text(golden.text(name, case), encoding="utf-8")
        assert "shellcheck disable" not in files[-1].read_text(encoding="utf-8")
        subprocess.run(["bash", "-n", files[-1]], check=True)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-x", "-S", "style", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_shellcheck_accepts_the_scripts_for_the_nodes() -> None:
    """What the job script writes for the nodes is clean too; its variables come from the files it sources."""
    shellcheck = Path(sys.executable).with_name("shellcheck")
    script = render(CASES["lab.torchrun"])
    for part in ("COMMON", "RANK", "NODE"):
        text = script.split(f"<<'END_OF_{part}'\n")[1].split(f"\nEND_OF_{part}\n")[0]
        done = subprocess.run(
            [shellcheck, "-s", "bash", "-e", "SC2154", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, ""), part


def test_directives_come_first() -> None:
    """Schedulers stop looking at the first command; Grid Engine never stops, so nothing else may look like one."""
    prefixes = {"slurm": "#SBATCH", "pbs": "#PBS", "gridengine": "#$", "pjm": "#PJM", "local": "#!"}
    for case in CASES.values():
        prefix = prefixes[case.profile.scheduler.type]
        lines = render(case).split("\n")
        found = [number for number, line in enumerate(lines) if line.startswith(prefix)]
        first = found[0]
        assert found == [*range(first, first + len(found))]


def test_header_says_what_the_script_was_made_from(own_place: Path) -> None:
    """Job file, profile and template stand in the script with their hashes."""
    from hpcjob.loading.prepare import prepare

    plan: Plan = prepare(None, profile="abci")
    script = render(plan)
    assert plan.profile_source is not None
    assert f"# profile hpcjob:cluster_profiles/abci3.yml, sha256 {plan.profile_source.sha256[:12]}" in script
    assert "# job hpcjob:jobs/2.7B/dp.yml, sha256 " in script
    assert "# template pbs.sh.j2 over base.sh.j2 and parts, sha256 " in script
    assert "# note: no account given" in script

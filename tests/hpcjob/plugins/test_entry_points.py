"""What submitit finds: one executor in the main wheel, one in each distribution of ``plugins/``, and none disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
import submitit
from submitit.core import plugins

from hpcjob import __version__
from tests.hpcjob.jobs import fake_command
from tests.hpcjob.plugins.conftest import REPOSITORY

NAMES = ("gridengine", "pbs", "pjm")


def test_each_wheel_registers_one_executor(site_packages: Path) -> None:
    """Name, requirement and entry points of each distribution, as they are in its wheel."""
    found = {dist.name: dist for dist in distributions(path=[str(site_packages)])}
    assert sorted(found) == [f"hpcjob-submitit-{name}" for name in NAMES]
    for name in NAMES:
        dist = found[f"hpcjob-submitit-{name}"]
        points = {(point.group, point.name, point.value.partition(":")[0]) for point in dist.entry_points}
        module = f"hpcjob_submitit_{name}"
        assert points == {("submitit", "executor", module), ("submitit", "job_environment", module)}
        assert dist.requires == [f"hpcjob=={__version__}"]


def test_submitit_finds_them(installed: None) -> None:
    """Beside its own; each environment bears its executor's name."""
    names = ["debug", "hpcjob", "local", "slurm", *NAMES]
    assert sorted(plugins.get_executors()) == sorted(names)
    assert sorted(plugins.get_job_environments()) == sorted(names)
    for name in ("hpcjob", *NAMES):
        assert plugins.get_executors()[name].job_class.__name__.lower() == f"{name}job"


def test_the_main_wheel_registers_only_its_own() -> None:
    """``cluster="hpcjob"``, without anything else being installed."""
    code = "from submitit.core import plugins; print(*sorted(plugins.get_executors()))"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("debug hpcjob local slurm\n", "")


@pytest.mark.parametrize(
    ("commands", "variables", "chosen"),
    [
        ((), {}, "local"),
        (("srun", "sbatch"), {}, "slurm"),
        (("srun", "sbatch", "qsub", "qstat", "pbsnodes"), {}, "slurm"),  # Slurm's wrappers for users of PBS
        (("qsub", "qstat", "pbsnodes"), {}, "pbs"),
        (("qsub", "qstat", "qconf"), {}, "gridengine"),
        (("qsub", "qstat", "pbsnodes", "qconf"), {}, "gridengine"),
        (("qsub",), {"SGE_ROOT": "/opt/sge"}, "gridengine"),
        (("pjsub",), {}, "pjm"),
        (("qsub",), {}, "local"),  # of which system, nobody knows
    ],
)
def test_what_is_chosen_by_itself(
    installed: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commands: tuple[str, ...],
    variables: dict[str, str],
    chosen: str,
) -> None:
    """Without ``cluster=`` submitit takes the scheduler that is here; never ``hpcjob``, which wants a profile."""
    for command in commands:
        fake_command(tmp_path / "bin", command, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("SGE_ROOT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert submitit.AutoExecutor.which() == chosen


def test_finding_them_leaves_submitits_log_alone(installed: None, tmp_path: Path) -> None:
    """A job of submitit's own local executor logs as it does without them."""
    plugins.get_executors()
    assert "SUBMITIT_LOG_LEVEL" not in os.environ
    job = submitit.AutoExecutor(tmp_path, cluster="local").submit(pow, 2, 5)
    assert job.result() == 32
    assert "Job completed successfully" in (job.stdout() or "")

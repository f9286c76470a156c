"""Cgroups of version 1 for the slurmd of each virtual host, in a branch of its own: they share the kernel's tree."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.testbed.hosts import Host

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("freezer", "memory")  # by the one Slurm tracks processes, by the other it limits them

CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""


def missing() -> list[str]:
    """One line for each reason why Slurm cannot limit the memory of jobs here."""
    lines = [
        f"{_ROOT / name} (cgroup version 1)" for name in _CONTROLLERS if not (_ROOT / name / "cgroup.procs").exists()
    ]
    if lines:
        return lines
    if not (_ROOT / "memory" / "memory.memsw.limit_in_bytes").exists():
        return ["a kernel that accounts for swap (swapaccount=1)"]
    probe = _ROOT / "memory" / "hpcjob-testbed"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return [f"a writable {_ROOT / 'memory'}: {error.strerror}"]
    return []


def give(host: Host, folder: Path) -> None:
    """Let ``host`` see a branch as if it were the whole; ``folder`` is its scheduler's, in that of the test bed."""
    for controller in _CONTROLLERS:
        branch = _ROOT / controller / folder.parent.name / host.name
        if not branch.exists():
            branch.mkdir(parents=True)
            host.run("mount", "--bind", branch, _ROOT / controller)


def remove(name: str) -> None:
    """Remove the branches of a test bed, of which no process is left."""
    for controller in _CONTROLLERS:
        branch = _ROOT / controller / name
        for path in sorted(branch.rglob("*"), reverse=True):
            if path.is_dir():
                path.rmdir()
        if branch.exists():
            branch.rmdir()

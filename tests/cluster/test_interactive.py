"""``hpcjob interactive`` on a real Slurm, in a terminal: the nodes that were asked, and ranks on them by each launcher."""

from __future__ import annotations

import re

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.user import BIN, PROFILE, User
from tests.hpcjob.terminal import type_into

pytestmark = pytest.mark.cluster


def session(user: User, arguments: list[str], lines: list[str], profile: str = PROFILE) -> tuple[int, str]:
    """Type ``lines`` into the shell that the user starts on the login host; its exit code and what was shown."""
    argv = [str(BIN / "hpcjob"), "interactive", *arguments, "-p", profile]
    login = user.bed.login
    environment = {**login.environment, **user.environment}
    return type_into(login.command(argv, user.folder), lines, env=environment)


def test_two_nodes(user: User, bed: Testbed) -> None:
    """salloc gives both nodes with their GPUs; modules, files and variables are a job's; srun, mpirun and pdsh start ranks."""
    bed.modules.add("tool/1.0", programs={"tool": {"--version": "tool 1.0\n"}})
    profile = user.write_profile(
        {"modules": {"init": user_init(), "use": [str(bed.modules.files)], "load": ["tool/1.0"]}}
    )
    (user.folder / "mine.sh").write_text("export MINE=sourced\n")
    job = user.write_job(
        "shape",
        nodes=2,
        procs_per_node=2,
        source=["mine.sh"],
        env={"GREETING": "it's"},
        command=["bash", "-c", "echo work $RANK"],
    )
    ask = "bash -c 'echo \"r $RANK of $WORLD_SIZE on $(uname -n) $GREETING\"'"
    lines = [
        f'uname -n; tool --version; echo "<$MINE $GREETING>"; module list 2>&1 | tail -1; launch {ask}; launch; launch false; echo "code $?"',
        "exit 4",
    ]
    code, shown = session(user, [str(job)], lines, profile)
    assert code == 4, shown
    for line in ("node1", "tool 1.0", "<sourced it's>", "code 1", "work 0"):
        assert f"{line}\n" in shown, shown
    assert re.search(r"tool/1\.0", shown)
    assert "r 0 of 4 on node1 it's\n" in shown
    folder = next((user.folder / "outputs" / "shape").iterdir())
    logs = "".join(path.read_text() for path in folder.glob("*_log.out"))
    assert sorted(re.findall(r"r (\d) of 4 on (node\d)", logs)) == [
        ("0", "node1"),
        ("1", "node1"),
        ("2", "node2"),
        ("3", "node2"),
    ]
    assert bed.login.run("squeue", "-h").stdout == ""


@pytest.mark.parametrize("launcher", ["mpirun", "pdsh"])
def test_other_launchers(user: User, launcher: str) -> None:
    """Inside the step that is the shell, Open MPI and pdsh reach both nodes too."""
    ask = "launch bash -c 'echo rank $RANK on $(uname -n) >seen.$RANK'; cat seen.*"
    code, shown = session(user, ["-n", "2", "--launcher", launcher], [ask, "exit"])
    assert code == 0, shown
    assert re.findall(r"rank (\d) on (node\d)\n", shown)[-2:] == [("0", "node1"), ("1", "node2")]


def user_init() -> str | None:
    """The file that brings `module`."""
    from tests.cluster.testbed.modules import init_script

    return init_script()

"""What a job asks for beside nodes and time, on a real Slurm."""

from __future__ import annotations

import pytest

from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster


def test_node_limits_and_scratch(user: User) -> None:
    """On the node that was asked for, alone there, with the limits asked for; results come back from the scratch."""
    (user.folder / "データ").write_text("in\n")
    work = 'uname -n; ulimit -n; cat "$HPCJOB_SCRATCH/データ" >"$HPCJOB_SCRATCH/out"; exit 4'
    keys = {
        "nodelist": ["node2"],
        "exclusive": True,
        "limits": {"nofile": 512},
        "stage_in": ["データ"],
        "stage_out": ["out"],
        "mail": ["fail"],
        "mail_to": "a@b.c",
    }
    job = user.submit(user.write_job("asked", kind="cpu", command=["bash", "-c", work], **keys))
    assert user.wait(job) == 4
    folder = user.jobdir(job)
    assert (folder / f"{job}_0_log.out").read_text().split()[:2] == ["node2", "512"]
    assert (folder / "stage_out" / "out").read_text() == "in\n"
    shown = user.run("scontrol", "show", "job", job, "--oneliner").stdout
    assert "OverSubscribe=NO" in shown
    assert "ReqNodeList=node2" in shown


def test_what_slurm_refuses_leaves_nothing(user: User) -> None:
    """A feature that no node has: Slurm's words, no folder, no record."""
    job = user.write_job("asked", kind="cpu", command=["true"], constraint="no_such_feature&other")
    done = user.run(BIN / "hpcjob", "submit", job, "-p", "testbed", check=False)
    assert done.returncode == 1
    assert "feature" in done.stderr.lower()
    assert not (user.folder / "outputs").exists()

"""The test bed itself: what the other tests of this folder stand on."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

import pytest

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.bed import recorded_hosts
from tests.cluster.testbed.hosts import held_namespaces, wait_for_end
from tests.cluster.testbed.modules import init_script
from tests.cluster.testbed.processes import PATIENCE_S, processes_in, wait_until

pytestmark = pytest.mark.cluster

MPIRUN_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

OWNER = """
import sys
from pathlib import Path
from tests.cluster.testbed import Testbed
bed = Testbed("doomed", has_accounting=False, base=Path(sys.argv[1]))
bed.up()
print("up", flush=True)
sys.stdin.read()
"""


def state_of(bed: Testbed, job: str) -> str:
    """State of a job in sacct's words, empty while accounting does not know it yet."""
    words = bed.login.run("sacct", "-X", "-n", "-P", "-j", job, "--format=State").stdout.split()
    return words[0] if words else ""


def wait_for_state(bed: Testbed, job: str, state: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until the accounting says ``state``."""
    wait_until(lambda: state_of(bed, job) == state, timeout_s, f"job {job} is not {state}")


def sbatch(bed: Testbed, script: str, *options: str) -> str:
    """Submit a script as it is; its id."""
    text = f"#!/bin/bash\n{script}\n"
    output = bed.login.run("sbatch", "--parsable", "--output=/dev/null", *options, stdin=text, cwd=bed.work).stdout
    return output.strip()


def test_hosts_have_names_addresses_and_ssh_of_their_own(bed: Testbed) -> None:
    """Each host reaches each other one by name through ssh, and is the one it says."""
    for start in bed.hosts.by_name.values():
        for target in bed.hosts.by_name:
            name, address = start.run("ssh", target, "hostname; hostname -I").stdout.split()
            assert name == target
            assert f"{address} {target}\n" in (bed.folder / "hosts" / "hosts").read_text()


def test_hosts_do_not_reach_out(bed: Testbed) -> None:
    """No host has a route out of the test bed."""
    for host in bed.hosts.by_name.values():
        routes = host.run("ip", "-o", "route").stdout.splitlines()
        assert all(route.startswith("10.77.0.0/24 ") for route in routes)


def test_tmp_and_shm_are_each_hosts_own(bed: Testbed) -> None:
    """A node's /tmp and /dev/shm are not seen by another, as on a cluster; the work folder is."""
    first, second = bed.nodes
    for folder, shared in (("/tmp", False), ("/dev/shm", False), (str(bed.work), True)):
        first.run("touch", f"{folder}/mark")
        assert (second.run("test", "-e", f"{folder}/mark", check=False).returncode == 0) == shared


def test_pdsh_returns_the_largest_code(bed: Testbed) -> None:
    """pdsh -S over ssh gives back a failure of one node."""
    command = ["pdsh", "-S", "-R", "ssh", "-w", "node[1-2]"]
    assert bed.login.run(*command, "true", check=False).returncode == 0
    assert bed.login.run(*command, "[ $(hostname) = node1 ] || exit 3", check=False).returncode == 3


def test_mpirun_starts_ranks_on_both_nodes(bed: Testbed) -> None:
    """Open MPI starts two ranks on each of two nodes through ssh."""
    command = ["mpirun", "-H", "node1:2,node2:2", "-np", "4", "sh", "-c", "echo $(hostname) $OMPI_COMM_WORLD_RANK"]
    lines = bed.login.run(*command, env=MPIRUN_AS_ROOT).stdout.splitlines()
    assert sorted(lines) == ["node1 0", "node1 1", "node2 2", "node2 3"]


def test_srun_runs_on_both_nodes_with_gpus(bed: Testbed) -> None:
    """srun gives each task its rank and the GPUs of its node."""
    task = "echo $(hostname) $SLURM_PROCID $CUDA_VISIBLE_DEVICES"
    lines = bed.login.run("srun", "-N2", "-n2", "--gpus-per-node=2", "sh", "-c", task, cwd=bed.work).stdout.splitlines()
    assert sorted(lines) == ["node1 0 0,1", "node2 1 0,1"]


def test_batch_jobs_end_in_their_states(bed: Testbed) -> None:
    """The accounting tells success, failure, cancellation and time-out of real batch jobs apart."""
    jobs = {
        "COMPLETED": sbatch(bed, "true"),
        "FAILED": sbatch(bed, "exit 7"),
        "CANCELLED": sbatch(bed, "sleep 300"),
        "TIMEOUT": sbatch(bed, "sleep 300", "--time=5"),
    }
    for state in ("CANCELLED", "TIMEOUT"):
        wait_for_state(bed, jobs[state], "RUNNING")
    bed.login.run("scancel", jobs["CANCELLED"])
    # Slurm refuses an end in the second of the start.
    bed.login.run("scontrol", "update", f"jobid={jobs['TIMEOUT']}", "EndTime=now+2")
    for state, job in jobs.items():
        wait_for_state(bed, job, state)


def test_modules_load_or_fail(bed: Testbed) -> None:
    """A stub module sets its variables and paths; a missing and a broken one fail."""
    bed.modules.add("cuda/11.8/11.8.0", programs={"nvcc": {"--version": "release 11.8\n"}})
    bed.modules.add_broken("broken", "licence server not reachable")

    def load(name: str) -> subprocess.CompletedProcess[str]:
        use = f". {init_script()}; module use {bed.modules.files}"
        script = f'{use}; module load "$1" || exit 4; nvcc --version; echo $CUDA_HOME'
        return bed.nodes[0].run("bash", "-c", script, "bash", name, check=False)

    assert load("cuda/11.8/11.8.0").stdout == f"release 11.8\n{bed.modules.home('cuda/11.8/11.8.0')}\n"
    assert load("cuda/99").returncode == 4
    broken = load("broken")
    assert broken.returncode == 4
    assert "licence server not reachable" in broken.stderr


def test_second_bed_without_accounting_runs_beside_the_first(bed: Testbed) -> None:
    """Two beds with the same names and ports do not meet, and Slurm runs without a data base."""
    job = sbatch(bed, "sleep 300")
    with contextlib.ExitStack() as held:
        with Testbed(has_accounting=False) as other:
            assert other.login.run("squeue", "-h", "-o", "%i").stdout == ""
            assert other.login.run("srun", "hostname", cwd=other.work).stdout == "node1\n"
            assert other.login.run("sacct", check=False).returncode != 0
            namespaces = held.enter_context(held_namespaces(other.hosts.by_name.values()))
            assert processes_in(namespaces)
        assert not processes_in(namespaces)
    assert not other.folder.exists()
    assert job in bed.login.run("squeue", "-h", "-o", "%i").stdout.split()
    bed.login.run("scancel", job)


def test_nothing_is_left_when_the_owner_is_killed(services: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """SIGKILL of the process that owns a bed ends all its hosts; the next bed removes the folder it left."""
    base = tmp_path_factory.mktemp("beds")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, base], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with contextlib.ExitStack() as held:
        with owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"up\n"
            namespaces = held.enter_context(held_namespaces(recorded_hosts(base / "doomed").values()))
            assert len(namespaces) == 3
            owner.send_signal(signal.SIGKILL)
        wait_for_end(namespaces)
    assert (base / "doomed").exists()
    with Testbed(has_accounting=False, base=base):
        assert not (base / "doomed").exists()

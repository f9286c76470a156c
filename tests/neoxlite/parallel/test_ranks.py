"""Ranks from the environments that launchers make."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from neoxlite.errors import NeoxliteError
from neoxlite.parallel.ranks import Ranks, first_host, free_port, ranks_from_environment

MASTER = {"MASTER_ADDR": "node7", "MASTER_PORT": "29111"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "4711"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, (5, 8, 1, 4, "torchrun")),
        (OPEN_MPI, (5, 8, 1, 4, "Open MPI")),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}, (5, 8, 1, 4, "PMI")),
        ({"PMI_RANK": "5", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1"}, (5, 8, 1, 2, "PMI")),
        (SLURM, (5, 8, 1, 2, "Slurm")),
        # An allocation of 16 tasks with a step of 8: the step is the world.
        ({**SLURM, "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "8"}, (5, 8, 1, 2, "Slurm")),
        # torchrun, started by srun: the inner launcher's ranks count.
        ({**SLURM, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, (0, 2, 0, 1, "torchrun")),
        # mpirun inside a Slurm allocation.
        ({**SLURM, **OPEN_MPI}, (5, 8, 1, 4, "Open MPI")),
    ],
)
def test_each_launcher_s_variables_give_the_ranks(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    """Rank, world, local rank and local size come from the launcher, the inner one first."""
    ranks = ranks_from_environment({**environ, **MASTER})
    got = (ranks.rank, ranks.world_size, ranks.local_rank, ranks.local_world_size, ranks.source)
    assert got == expected
    assert (ranks.master_addr, ranks.master_port) == ("node7", 29111)


@pytest.mark.parametrize(
    "environ", [{}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}, {"WORLD_SIZE": "1"}]
)
def test_without_a_launcher_a_process_is_alone(environ: dict[str, str]) -> None:
    """Nothing set, or only what a Slurm batch script sees outside of a step: a world of one, which needs no address."""
    assert ranks_from_environment(environ) == Ranks()


def test_slurm_without_an_address_uses_the_first_node_and_a_port_of_the_job() -> None:
    """All ranks of a step derive the same address and port without talking."""
    environ = {**SLURM, "SLURM_STEP_NODELIST": "gpu[03-05,09],login1"}
    ranks = ranks_from_environment(environ)
    assert (ranks.master_addr, ranks.master_port) == ("gpu03", 20000 + 4711)


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-4]", "n1"),
        ("a[07,09]b[1-2]-x,c", "a07b1-x"),
        ("rack-2-node10", "rack-2-node10"),
    ],
)
def test_first_host_of_a_node_list(nodelist: str, host: str) -> None:
    """Slurm's compressed lists are read up to the first host."""
    assert first_host(nodelist) == host


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, "RANK='x'"),
        ({"RANK": "8", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, "rank 8 of a world of 8"),
        ({"RANK": "1", "WORLD_SIZE": "8"}, "LOCAL_RANK is not set"),
        ({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "NEOXLITE_WORLD_SIZE": "16"}, "16 ranks were requested"),
        ({"NEOXLITE_WORLD_SIZE": "2"}, "2 ranks were requested"),
        # Each of these trained alone.
        ({"RANK": "3"}, "RANK=3 is set, but WORLD_SIZE is not"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set, but RANK is not"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "-1"}, "local rank -1"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "99999"},
            "MASTER_PORT=99999 is not a port",
        ),
    ],
)
def test_wrong_environments_are_refused(environ: dict[str, str], message: str) -> None:
    """A damaged or incomplete environment, or a world of the wrong size, is named before anything can hang."""
    with pytest.raises(NeoxliteError, match=message) as caught:
        ranks_from_environment({**MASTER, **environ})
    assert caught.value.exit_code == 2


def test_torchrun_without_an_address_is_refused() -> None:
    """There is nothing to guess the address from."""
    with pytest.raises(NeoxliteError, match="MASTER_ADDR is not set"):
        ranks_from_environment({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})


@pytest.mark.parametrize("code", ["raise ImportError('no MPI')", "raise OSError('libmpi.so.40: cannot open')"])
def test_mpi_without_address_and_without_mpi4py_names_the_extra(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out is in the message, whatever a broken library raises: export the address, or install the extra."""
    (tmp_path / "mpi4py.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mpi4py", raising=False)
    with pytest.raises(NeoxliteError) as caught:
        ranks_from_environment(OPEN_MPI)
    assert "hpcjob[mpi]" in str(caught.value)
    assert "MASTER_ADDR" in str(caught.value)


def test_mpi_is_left_when_the_ranks_have_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in MPI ends only when all do, and mpirun would not see one fail. The MPI of others is not ended."""
    calls: list[str] = []
    world = SimpleNamespace(Get_size=lambda: 8, bcast=lambda mine, root: ("node1", 2345))
    mpi = SimpleNamespace(COMM_WORLD=world, Finalize=lambda: calls.append("left"))
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    assert ranks_from_environment(OPEN_MPI).master_addr == "node1"
    assert calls == ["left"]
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    ranks_from_environment(OPEN_MPI)
    assert calls == ["left"]


def test_exported_variables_are_torch_s() -> None:
    """What is exported to torch and DeepSpeed reads back as the same ranks."""
    ranks = Ranks(3, 4, 1, 2, "node1", 2345, "Slurm")
    again = ranks_from_environment(ranks.exported())
    assert again == Ranks(3, 4, 1, 2, "node1", 2345, "torchrun")
    assert 1024 <= free_port() < 65536

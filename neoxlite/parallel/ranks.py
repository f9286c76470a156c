"""This process's rank, read from whatever launcher started it. Imports no torch.

Sources, first match wins: torchrun (RANK, WORLD_SIZE, LOCAL_RANK), Open MPI (OMPI_COMM_WORLD_*), PMI as set by MPICH,
Intel MPI and PALS (PMI_*), a Slurm step (SLURM_PROCID, ...), or nothing: a single process.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from neoxlite.errors import ConfigError, NeoxliteError

_DEFAULT_PORT = 29500
_LAST_PORT = 65535

# source -> rank, world size (first name that is set), local rank, local size
_SOURCES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "torchrun": ("RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    "PMI": (
        "PMI_RANK",
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    ),
    "Slurm": ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), ()),
}
_MPI = ("Open MPI", "PMI")


@dataclass(frozen=True)
class Ranks:
    """Where this process stands in the world, and where rank 0 listens."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str | None = None
    """Address of rank 0; None for a single process, which needs none."""
    master_port: int | None = None
    source: str = "single process"

    def exported(self) -> dict[str, str]:
        """Return the variables by which torch and DeepSpeed know all this."""
        names: dict[str, object] = {
            "RANK": self.rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_world_size,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": self.master_port,
        }
        return {name: str(value) for name, value in names.items() if value is not None}


def ranks_from_environment(environ: Mapping[str, str] | None = None) -> Ranks:
    """Return this process's ranks; under MPI without MASTER_ADDR all processes must call this together.

    Raises:
        ConfigError: a variable is missing or no number, the world is not the asked one (NEOXLITE_WORLD_SIZE), or no
            address of rank 0 can be found.
        NeoxliteError: mpi4py, which would find that address, cannot be used.
    """
    env = os.environ if environ is None else environ
    source = _source(env)
    if source is None:
        _refuse_half(env)
        ranks = Ranks()
    else:
        rank_name, size_names, local_names, local_size_names = _SOURCES[source]
        rank, world_size = _number(env, (rank_name,), source), _number(env, size_names, source)
        local_rank = _number(env, local_names, source, default=0 if world_size == 1 else None)
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"{source} gives rank {rank} of a world of {world_size}", hint=f"check {rank_name} and {size_names[0]}"
            )
        if local_rank < 0:
            raise ConfigError(f"{source} gives local rank {local_rank}", hint=f"check {local_names[0]}")
        ranks = Ranks(
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            local_world_size=_number(env, local_size_names, source, default=local_rank + 1),
            source=source,
        )
    _check_world_size(env, ranks)
    if ranks.world_size == 1:
        return ranks
    address, port = _rendezvous(env, ranks)
    return Ranks(ranks.rank, ranks.world_size, ranks.local_rank, ranks.local_world_size, address, port, ranks.source)


def _source(env: Mapping[str, str]) -> str | None:
    for source, (rank_name, size_names, _, _) in _SOURCES.items():
        # A Slurm batch script has SLURM_PROCID=0 too, but no step: a process started there is alone.
        if source == "Slurm" and "SLURM_STEP_ID" not in env:
            continue
        if rank_name in env and any(name in env for name in size_names):
            return source
    return None


def _refuse_half(env: Mapping[str, str]) -> None:
    """Refuse one of torchrun's two variables without the other: each rank would train alone."""
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if name in env and other not in env and (name, env[name]) != ("WORLD_SIZE", "1"):
            raise ConfigError(
                f"{name}={env[name]} is set, but {other} is not",
                hint=f"start all ranks with one launcher, which sets both; for a single process: unset {name}",
            )


def _number(env: Mapping[str, str], names: tuple[str, ...], source: str, default: int | None = None) -> int:
    for name in names:
        if name in env:
            try:
                return int(env[name])
            except ValueError:
                raise ConfigError(
                    f"{name}={env[name]!r} is not a number", hint=f"it should come from {source}: check the launch line"
                ) from None
    if default is None:
        raise ConfigError(
            f"started by {source}, but {' or '.join(names)} is not set",
            hint="start all ranks with one launcher, and forward its variables",
        )
    return default


def _check_world_size(env: Mapping[str, str], ranks: Ranks) -> None:
    asked = env.get("NEOXLITE_WORLD_SIZE")
    if asked is None or asked == str(ranks.world_size):
        return
    raise ConfigError(
        f"{asked} ranks were requested (NEOXLITE_WORLD_SIZE), but the world has {ranks.world_size} ({ranks.source})",
        hint="check the launcher's number of processes and nodes",
    )


def _rendezvous(env: Mapping[str, str], ranks: Ranks) -> tuple[str, int]:
    port = _number(env, ("MASTER_PORT",), ranks.source, default=0)
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"MASTER_PORT={port} is not a port", hint=f"give a number from 1 to {_LAST_PORT}")
    address = env.get("MASTER_ADDR")
    if address:
        return address, port or _DEFAULT_PORT
    if ranks.source in _MPI:
        return _agree_by_mpi(ranks, port)
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST")
    if ranks.source == "Slurm" and nodes:
        # All ranks must find the same port without talking: spread jobs over 20000-39999 by their id.
        return first_host(nodes), port or 20000 + _number(env, ("SLURM_JOB_ID",), "Slurm", default=0) % 20000
    raise ConfigError(
        f"MASTER_ADDR is not set ({ranks.source}, rank {ranks.rank} of {ranks.world_size})",
        hint="export MASTER_ADDR (host of rank 0) and MASTER_PORT before the launch",
    )


def first_host(nodelist: str) -> str:
    """Return the first host of a Slurm node list: ``"gpu[03-05,09],login"`` -> ``"gpu03"``."""
    head = re.match(r"[^,\[]*(\[[^\]]*\][^,\[]*)*", nodelist)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", head.group(0) if head else nodelist)


def free_port() -> int:
    """Return a TCP port that is free on this host at this moment."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _agree_by_mpi(ranks: Ranks, port: int) -> tuple[str, int]:
    """Let rank 0 tell its host name and a free port to all ranks over MPI, which is then left.

    A process in MPI ends only when all do: mpirun would not see that one has failed, and each would tell its own error.
    """
    ours = "mpi4py.MPI" not in sys.modules
    try:
        from mpi4py import MPI
    except Exception as error:  # whatever a broken library raises
        raise NeoxliteError(
            f"{ranks.source} started {ranks.world_size} ranks without MASTER_ADDR, and mpi4py cannot be used: {error}",
            hint="export MASTER_ADDR and MASTER_PORT, or: pip install 'hpcjob[mpi]' (it also needs the MPI library)",
        ) from None
    world = MPI.COMM_WORLD
    if world.Get_size() != ranks.world_size:
        raise NeoxliteError(
            f"mpi4py sees {world.Get_size()} ranks, the launcher started {ranks.world_size}",
            hint="mpi4py uses another MPI than mpirun: load that MPI's module, or export MASTER_ADDR and MASTER_PORT",
        )
    mine = (socket.gethostname(), port or free_port()) if ranks.rank == 0 else None
    address, agreed_port = world.bcast(mine, root=0)
    if ours:
        MPI.Finalize()
    return str(address), int(agreed_port)

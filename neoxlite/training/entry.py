"""A training run from configuration to outcome."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from neoxlite.checkpoint.lock import SaveLock
from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.parallel.distributed import choose_device, join_world, leave_world, lost_peers, prepare
from neoxlite.parallel.ranks import Ranks, ranks_from_environment
from neoxlite.parallel.topology import Grid, create_topology
from neoxlite.parallel.watch import PeerWatch
from neoxlite.training.agreement import check_alike, check_shared, settings, versions
from neoxlite.training.engine import check_supported
from neoxlite.training.environment import RunFiles
from neoxlite.training.faults import dump_at_faults
from neoxlite.training.log_stream import unfailing_stdout
from neoxlite.training.outcome import Outcome, Progress, failure_recorded, record_failure, write_if_possible
from neoxlite.training.signals import EndSignals

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

_ALIKE = "start all ranks with the same files, options and installation: from a folder that all nodes share"


def run(cfg: NeoxConfig, *, ranks: Ranks | None = None, files: RunFiles | None = None) -> Outcome:
    """Train as ``cfg`` says, from the checkpoint in ``cfg.load`` if there is one, and return how it ended.

    One run a process: DeepSpeed keeps state that outlives its process groups.

    Args:
        cfg: resolved for this world size.
        ranks: by default from the environment of the launcher.
        files: by default from the NEOXLITE_* variables. Rank 0 writes the outcome there, also a failed one.

    Raises:
        NeoxliteError: a mistake of the user, a damaged checkpoint, another run that saves to the same folder, a
            training that diverged, or a rank that died.

    SIGTERM or Ctrl-C before the first iteration ends the process at once, with the outcome ``stopped``; later it stops
    the loop. A second Ctrl-C then ends the process at once with code 130.
    """
    ranks = ranks_from_environment() if ranks is None else ranks
    files = RunFiles.from_environment() if files is None else files
    progress = Progress()
    outcome_file: Path | None = files.outcome if ranks.rank == 0 else None
    lock = SaveLock(Path(cfg.save) if cfg.save and ranks.rank == 0 else None)
    with (
        unfailing_stdout(),
        failure_recorded(outcome_file, progress),
        EndSignals(outcome_file, progress, lock.release) as signals,
        lock,
    ):
        if cfg.world_size != ranks.world_size:
            raise ConfigError(
                f"the configuration is for {cfg.world_size} ranks, but {ranks.world_size} were started",
                hint="start as many, or omit global_num_gpus",
            )
        dump_at_faults()
        device = choose_device(ranks.local_rank)
        unused = gpus_left_unused(device)
        if unused is not None and ranks.local_rank == 0:
            print(unused, file=sys.stderr, flush=True)
        check_supported(cfg, device)
        prepare(device)
        join_world(ranks, device)
        if ranks.rank > 0:
            signals.only_flag()  # rank 0 learns of it before the first iteration

        def fail(line: str) -> None:
            record_failure(outcome_file, progress, line)
            lock.release()

        watch = PeerWatch(ranks, fail)
        with lost_peers(f"rank {ranks.rank} lost the other ranks"), watch:
            watch.start(device)
            if ranks.world_size > 1:
                check_alike({**versions(), **settings(cfg)}, ranks.world_size, hint=_ALIKE)
            _acquire(lock, cfg.save, ranks, device)
            grid = Grid(max(1, cfg.pipe_parallel_size), cfg.data_parallel_size, cfg.model_parallel_size)
            topology = create_topology(grid, ranks.rank, sequence_parallel=cfg.sequence_parallel)
            # Imported here: it pulls in the model and DeepSpeed, which `prepare` has to come before.
            from neoxlite.training.trainer import Trainer

            outcome = Trainer(cfg, topology, device, files, progress).train(signals)
            write_if_possible(outcome_file, outcome)
            if ranks.world_size > 1:
                # A launcher ends the other ranks when one leaves with a code that is not 0: not before this is written.
                dist.barrier()
            watch.close()
            leave_world()
    return outcome


def gpus_left_unused(device: torch.device, devices: Path = Path("/dev")) -> str | None:
    """Return a warning if this host has NVIDIA GPUs that torch does not see, and nobody asked for the CPU; or None."""
    if device.type != "cpu" or os.environ.get("DS_ACCELERATOR") == "cpu" or not any(devices.glob("nvidia[0-9]*")):
        return None
    return (
        f"WARNING: {socket.gethostname()} has GPUs, but torch {torch.__version__} sees none: it trains on the CPU. Is "
        "it a build for CUDA, does nvidia-smi find the GPUs here, and is CUDA_VISIBLE_DEVICES right? "
        "(DS_ACCELERATOR=cpu says that the CPU is meant)"
    )


def _acquire(lock: SaveLock, save: str | None, ranks: Ranks, device: torch.device) -> None:
    """Take the lock of the save folder on rank 0, and look for it on every node.

    Raises:
        CheckpointError: it cannot be had, or some node has another folder of that name; the same on every rank.
    """
    problem: CheckpointError | None = None
    try:
        lock.acquire()
    except CheckpointError as error:
        problem = error
    if ranks.world_size > 1:
        told = [(problem, lock.owner)]
        dist.broadcast_object_list(told, src=0, device=device)
        problem, owner = told[0]
        if save and problem is None:
            check_shared(save, owner, ranks)
    if problem is not None:
        raise problem

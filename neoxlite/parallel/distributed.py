"""The process group: device, backend, time-outs, and DeepSpeed kept quiet.

Import order matters: `prepare` sets what DeepSpeed reads while it is imported, so it comes before any use of DeepSpeed.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import io
import logging
import os
import re
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist

from neoxlite.errors import ConfigError, NeoxliteError
from neoxlite.parallel.ranks import Ranks

TIMEOUT_VARIABLE = "NEOXLITE_TIMEOUT_S"
_DEFAULT_TIMEOUT_S = 600.0


def choose_device(local_rank: int) -> torch.device:
    """Return this rank's device: a GPU if there is one, unless DS_ACCELERATOR says cpu.

    Raises:
        NeoxliteError: fewer GPUs than ranks on this node.
    """
    if os.environ.get("DS_ACCELERATOR") == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if count == 1:
        local_rank = 0  # the launcher showed each rank its own GPU
    if local_rank >= count:
        raise NeoxliteError(
            f"local rank {local_rank} has no GPU: this node shows {count}",
            hint="start as many ranks a node as it has GPUs, and check CUDA_VISIBLE_DEVICES",
        )
    return torch.device("cuda", local_rank)


def prepare(device: torch.device) -> None:
    """Import DeepSpeed for ``device``, without its compiled operators on the CPU and without its chatter."""
    # Unset, DeepSpeed warns on stdout in every process and may pick another device than ours.
    os.environ["DS_ACCELERATOR"] = device.type
    with quiet_stdout():
        import deepspeed.ops
        from deepspeed.utils import logger

        _import_muon_uncompiled()
    # What is imported stays: DeepSpeed collects garbage several times while it sets up, over all of torch's objects.
    gc.freeze()
    logger.setLevel(logging.ERROR)
    # DeepSpeed 0.19 calls functions that torch is renaming; nothing a user of ours could change.
    warnings.filterwarnings("ignore", message=r"`torch\.distributed\..*` is deprecated", category=FutureWarning)
    if device.type == "cpu":
        # Otherwise init_distributed compiles a shared-memory operator (30-130 s) that nothing here uses.
        deepspeed.ops.__compatible_ops__ = {}


def _import_muon_uncompiled() -> None:
    """Import DeepSpeed's Muon optimizer with torch.compile left out.

    DeepSpeed imports it whatever optimizer is used, and its decorators would load torch's whole compiler: seconds in
    every rank for functions that nothing here calls.
    """
    compile_ = torch.compile
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function  # type: ignore[assignment]
    try:
        import deepspeed.runtime.zero.muon.original_muon  # noqa: F401
    finally:
        torch.compile = compile_


def timeout_s() -> float:
    """Return how long a rank waits for its peers, in seconds: NEOXLITE_TIMEOUT_S or ten minutes."""
    text = os.environ.get(TIMEOUT_VARIABLE)
    if text is None:
        return _DEFAULT_TIMEOUT_S
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise ConfigError(f"{TIMEOUT_VARIABLE}={text!r} is not a positive number", hint="give seconds, such as 600")
    return value


def join_world(ranks: Ranks, device: torch.device) -> None:
    """Make the default process group, with NCCL on GPUs and gloo on CPUs, and tell DeepSpeed of it."""
    import deepspeed

    os.environ.update(ranks.exported())
    if device.type == "cuda":
        # DeepSpeed takes its GPU from here; a launcher that shows each rank its own GPU leaves only number 0.
        os.environ["LOCAL_RANK"] = str(device.index)
    timeout = datetime.timedelta(seconds=timeout_s())
    _set_default_timeout(timeout)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if ranks.world_size == 1:
        # A store in memory: one process needs no port, so no two jobs on a machine can meet on one.
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        with _joining(ranks):
            dist.init_process_group(
                backend,
                rank=ranks.rank,
                world_size=ranks.world_size,
                timeout=timeout,
                device_id=device if device.type == "cuda" else None,
            )
    with quiet_stdout():
        deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)


def leave_world() -> None:
    """Destroy the process groups."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _set_default_timeout(timeout: datetime.timedelta) -> None:
    """Give the time-out to groups made without one, too: DeepSpeed's sub-groups would wait torch's 30 minutes."""
    import torch.distributed.distributed_c10d as c10d

    c10d.default_pg_timeout = timeout
    c10d.default_pg_nccl_timeout = timeout  # type: ignore[attr-defined]


class PeerLostError(NeoxliteError):
    """Another rank died or stopped answering."""


_GLOO_SIGNS = ("gloo", "Gloo", "ProcessGroup", "Connection closed", "Connection reset", "Timed out waiting")


@contextlib.contextmanager
def lost_peers(doing: str) -> Iterator[None]:
    """Turn the network errors of torch.distributed inside the block into a PeerLostError that begins with ``doing``."""
    try:
        yield
    except RuntimeError as error:
        # gloo's errors are plain RuntimeErrors, known by their text only.
        if not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in _GLOO_SIGNS):
            raise
        first_line = str(error).strip().splitlines()[0]
        raise PeerLostError(
            f"{doing}: {first_line}",
            hint="another rank has probably died first: look for the earliest error in the other ranks' logs",
        ) from error


@contextlib.contextmanager
def _joining(ranks: Ranks) -> Iterator[None]:
    """Say why a rank could not join the others, by the words of torch and NCCL."""
    where = f"{ranks.master_addr}:{ranks.master_port}"
    try:
        with lost_peers(f"rank {ranks.rank} cannot join the others at {where}"):
            yield
    except PeerLostError as error:
        text = str(error.__cause__)
        if "EADDRINUSE" in text:
            raise NeoxliteError(
                f"rank 0 cannot listen on port {ranks.master_port}: another program of this host has it",
                hint="set another MASTER_PORT; the other may be a run that has not ended yet",
            ) from error
        if joined := re.search(r"(\d+)/(\d+) clients joined", text):
            raise PeerLostError(
                f"only {joined[1]} of {joined[2]} ranks came to rank 0 at {where} in {timeout_s():g} s",
                hint="look for the earliest error in the other ranks' logs: they failed before, were not started, or "
                "cannot reach this host by that name",
            ) from error
        if "Duplicate GPU" in text:
            raise NeoxliteError(
                f"rank {ranks.rank} has the GPU of another rank: this node shows fewer GPUs than it has ranks",
                hint="start as many ranks a node as it has GPUs, and check CUDA_VISIBLE_DEVICES",
            ) from error
        if ranks.rank > 0:
            error.hint = f"rank 0 must run, and this host must reach it as {ranks.master_addr}: see rank 0's log first"
        raise


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Swallow what DeepSpeed prints inside the block; our own lines are the only ones on stdout."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield

"""What all ranks must have in common before they train together.

Nodes without a shared file system, or with an old copy of it, read other files than rank 0. What then happens depends
on what differs: a collective that waits for ever, an abort deep inside of one, or a run whose ranks train towards
different ends without a word.
"""

from __future__ import annotations

import platform
import socket
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

import neoxlite
from neoxlite.checkpoint.lock import is_seen
from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.parallel.ranks import Ranks

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

_OWN: Final = {"rank", "local_rank", "save", "load", "hostfile"}
"""Keys that may differ from rank to rank, beside those of files and folders, which a node may have elsewhere."""
_PLACES: Final = ("_path", "_paths", "_dir", "_file")
_LONGEST: Final = 60
_SEEN_WITHIN_S: Final = 30.0
"""Clients of NFS may keep what they know of a folder so long."""
_NAMED: Final = 3

Told = Mapping[str, str]
"""What a rank has, by names for the user."""


def versions() -> dict[str, str]:
    """Return the versions of what trains; neoxlite's with a checksum of its code, which a checkout may have changed."""
    import deepspeed

    code = 0
    for path in sorted(Path(neoxlite.__file__).parent.rglob("*.py")):
        code = zlib.crc32(path.read_bytes(), code)
    return {
        "neoxlite": f"{neoxlite.__version__} (code {code:08x})",
        "torch": torch.__version__,
        "deepspeed": deepspeed.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def settings(cfg: NeoxConfig) -> dict[str, str]:
    """Return the keys that were set, without those of places."""
    kept = {key: value for key, value in cfg.as_dict().items() if key not in _OWN and not key.endswith(_PLACES)}
    return dict(_flat(kept))


def _flat(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of nested blocks by dotted keys."""
    for key, value in block.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", repr(value)


def check_start(checkpoint: Path | None, padded_vocab_size: int, data_order: str, world_size: int) -> None:
    """Refuse ranks that found another checkpoint, tokenizer or dataset than rank 0; every rank calls this.

    Args:
        checkpoint: folder to begin from; None for a new run.
        data_order: digest of what the order of the training data depends on.

    Raises:
        ConfigError: the same on every rank.
    """
    told = {
        "the checkpoint to begin from": checkpoint.name if checkpoint is not None else "none",
        "the padded vocabulary": f"{padded_vocab_size:,}",
        "the training data (digest)": data_order[:8],
    }
    hint = "paths lead elsewhere on some nodes: give absolute ones, to what all nodes share or have alike"
    check_alike(told, world_size, hint=hint)


def check_alike(told: Told, world_size: int, *, hint: str) -> None:
    """Compare what the ranks tell; every rank calls this.

    Raises:
        ConfigError: they differ; the same on every rank.
    """
    if world_size == 1:
        return
    gathered: list[tuple[str, Told]] = [("", {})] * world_size
    dist.all_gather_object(gathered, (socket.gethostname(), dict(told)))
    found = differences(gathered)
    if found:
        more = f" (and {len(found) - _NAMED} more)" if found[_NAMED:] else ""
        raise ConfigError(f"the ranks differ: {'; '.join(found[:_NAMED])}{more}", hint=hint)


def check_shared(save: str, owner: str, ranks: Ranks) -> None:
    """Look for rank 0's lock in ``save`` from every node; every rank calls this, when rank 0 has the lock.

    Args:
        owner: what the lock file names.

    Raises:
        CheckpointError: some node does not see it, and could not save there; the same on every rank.
    """
    seen = ranks.local_rank != 0 or is_seen(Path(save), owner, _SEEN_WITHIN_S)
    gathered: list[tuple[str, bool]] = [("", True)] * ranks.world_size
    dist.all_gather_object(gathered, (socket.gethostname(), seen))
    blind = [f"rank {rank} ({host})" for rank, (host, sees) in enumerate(gathered) if not sees]
    if blind:
        more = f" and {len(blind) - 1} more" if blind[1:] else ""
        raise CheckpointError(
            f"save: {save} is not the same folder on all nodes: {blind[0]}{more} does not see what rank 0 "
            f"({gathered[0][0]}) has written there",
            hint="give a folder on a file system that all nodes share, by its absolute path",
            exit_code=2,
        )


def differences(gathered: Sequence[tuple[str, Told]]) -> list[str]:
    """Return a line for each thing that is not the same on all ranks, of (host, what it has) by rank."""
    found = []
    for name in dict.fromkeys(name for _, told in gathered for name in told):
        ranks = defaultdict(list)
        for rank, (_, told) in enumerate(gathered):
            ranks[told.get(name, "not set")].append(rank)
        if len(ranks) > 1:
            parts = [f"{_short(value)} on {_where(having, gathered)}" for value, having in ranks.items()]
            found.append(f"{name} is {', '.join(parts[:_NAMED])}" + (", ..." if parts[_NAMED:] else ""))
    return found


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}... (checksum {zlib.crc32(value.encode()):08x})"


def _where(ranks: Sequence[int], gathered: Sequence[tuple[str, Told]]) -> str:
    more = f" and {len(ranks) - 1} more" if ranks[1:] else ""
    return f"rank {ranks[0]} ({gathered[ranks[0]][0]}){more}"

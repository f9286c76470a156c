"""A checkpoint of ours written anew: whole optimizer tensors instead of pieces, another precision, or weights alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from neoxlite.checkpoint.optimizer_state import MASTER
from neoxlite.convert.compare import prompt_tokens
from neoxlite.convert.from_hf import read_back
from neoxlite.convert.memory import return_freed_blocks
from neoxlite.convert.own import NewCheckpoint, OwnCheckpoint, write_checkpoint
from neoxlite.convert.streamed import our_logits
from neoxlite.convert.upstream_optimizer import State
from neoxlite.convert.weight import Weight, cast
from neoxlite.errors import CheckpointError


@dataclass(frozen=True)
class Resharded:
    """What was written."""

    folder: Path
    files_before: int
    files: int
    nbytes: int
    with_optimizer: bool


def reshard(folder: Path, root: Path, *, dtype: torch.dtype | None = None, with_optimizer: bool = True) -> Resharded:
    """Write the checkpoint in ``folder`` anew under ``root``.

    The optimizer's pieces, of which each rank that saved has written its own, become one file a layer.

    Args:
        dtype: of the weights; by default as they are. fp32 takes the master weights where there are any; from fp32 to
            less keeps them as master weights.

    Raises:
        CheckpointError: it is damaged, has no optimizer state to keep, or ``root`` cannot be written.
    """
    return_freed_blocks()
    source = OwnCheckpoint.open(folder)
    state = source.optimizer_state() if with_optimizer and source.training["with_optimizer"] else None
    weights = source.weights
    if dtype is not None:
        weights, state = _cast(weights, state, dtype)
    expected = weights

    def check(written: Path) -> None:
        tokens = prompt_tokens(None, source.spec)
        there, here = (
            our_logits(source.spec, one, tokens) for one in (expected, read_back(written, source.parameters))
        )
        if not bool((there == here).all()):
            raise CheckpointError(f"{root}: what was written reads otherwise", hint="check the disk, and run it again")

    new = NewCheckpoint(int(source.training["iteration"]), weights, state, source.training, source.texts())
    written = write_checkpoint(root, new, check)
    return Resharded(
        written, _count(folder), _count(written), sum(p.stat().st_size for p in written.iterdir()), state is not None
    )


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.safetensors"))


def _cast(
    weights: dict[str, Weight], state: State | None, dtype: torch.dtype
) -> tuple[dict[str, Weight], State | None]:
    masters = {name: kinds[MASTER] for name, kinds in (state or {}).items() if MASTER in kinds}
    if state is not None:
        full = {name: masters.get(name, weight) for name, weight in weights.items()}
        if dtype == torch.float32:
            state = {
                name: {kind: one for kind, one in kinds.items() if kind != MASTER} for name, kinds in state.items()
            }
        else:
            state = {name: {**kinds, MASTER: cast(full[name], torch.float32)} for name, kinds in state.items()}
        weights = full
    return {name: cast(weight, dtype) for name, weight in weights.items()}, state

"""Dropout whose masks do not depend on the layout.

The mask of a sample at a place of the model is drawn from a generator of its own, seeded by the micro-batch's seed
(torch's global one), the sample's row and the place. So it is the same whichever rank computes the sample, however many
samples share a micro-batch, and whatever was drawn before. Activation checkpointing restores torch's global state, and
with it the seed, when it computes again.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def dropout(x: Tensor, probability: float, place: str, part: tuple[int, int] = (0, 1)) -> Tensor:
    """Zero elements of ``x`` (samples, length, ...) with ``probability`` and scale up the rest.

    Args:
        place: names the dropout in the model.
        part: which part of the length ``x`` is: (number, of how many). Its mask is that part of the whole one's.
    """
    if probability == 0:
        return x
    keep = torch.empty_like(x, dtype=torch.bool)
    generator = torch.Generator(x.device)
    number, parts = part
    whole = keep.new_empty((parts * x.shape[1], *x.shape[2:])) if parts > 1 else None
    for row, mask in enumerate(keep):
        drawn = mask if whole is None else whole
        drawn.bernoulli_(1 - probability, generator=generator.manual_seed(_seed_of(row, place)))
        if whole is not None:
            mask.copy_(whole.chunk(parts)[number])
    return x * keep * (1 / (1 - probability))


def head_dropout(x: Tensor, probability: float, block: int, first_head: int) -> Tensor:
    """Like `dropout` for (samples, heads, ...), with masks of each head; ``first_head`` is the number of the first."""
    keep = torch.empty_like(x, dtype=torch.bool)
    generator = torch.Generator(x.device)
    for row, masks in enumerate(keep):
        for head, mask in enumerate(masks, start=first_head):
            seed = _seed_of(row, f"{block}/head/{head}")
            mask.bernoulli_(1 - probability, generator=generator.manual_seed(seed))
    return x * keep * (1 / (1 - probability))


def _seed_of(row: int, place: str) -> int:
    # Rows add to the seed of the first one: see `neoxlite.training.rng.seed_micro_batch`.
    digest = hashlib.blake2b(f"{torch.initial_seed() + row}/{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1

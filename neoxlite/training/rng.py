"""Random numbers of training (dropout) as a function of seed, iteration and rank.

The generators are seeded anew for every iteration. A resumed run therefore draws what an unbroken one would have drawn,
with nothing to save, and replicas draw independently of each other.
"""

from __future__ import annotations

import hashlib

import torch


def seed_iteration(seed: int, iteration: int, data_rank: int) -> None:
    """Seed torch's generators, of the CPU and of the device, for ``iteration`` on data-parallel rank ``data_rank``."""
    digest = hashlib.blake2b(f"{seed}/{iteration}/{data_rank}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little") >> 1)

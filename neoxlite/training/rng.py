"""Random numbers of training (dropout) as a function of seed, iteration and sample.

The global generator is seeded anew for every micro-batch, and `neoxlite.model.dropout` derives all masks from that
seed. A resumed run therefore draws what an unbroken one would have drawn, with nothing to save, and so does a run in
another layout.
"""

from __future__ import annotations

import hashlib

import torch

_SAMPLE_BITS = 24


def seed_micro_batch(seed: int, iteration: int, first_sample: int) -> None:
    """Seed torch's generators for the micro-batch whose first sample is ``first_sample`` of the iteration's batch.

    The samples behind it have the seeds that follow.
    """
    digest = hashlib.blake2b(f"{seed}/{iteration}".encode(), digest_size=8).digest()
    base = int.from_bytes(digest, "little") >> (_SAMPLE_BITS + 1) << _SAMPLE_BITS
    torch.manual_seed(base + first_sample)

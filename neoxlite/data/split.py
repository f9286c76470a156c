"""The ``split`` string: which documents train, validate and test."""

from __future__ import annotations

import math

from neoxlite.errors import DataError


def split_documents(split: str, documents: int) -> tuple[range, range, range]:
    """Divide ``documents`` as GPT-NeoX does (megatron/data/data_utils.py at ea7aefd8).

    Args:
        split: up to three shares separated by "," or "/", such as "969, 30, 1"; they need not add up to anything.
        documents: number of sequences in the dataset.

    Raises:
        DataError: a share is no number or negative, or all are zero.
    """
    shares = _parse(split)
    total = sum(shares)
    ends: list[int] = []
    for share in shares:
        ends.append((ends[-1] if ends else 0) + round(share / total * documents))
    surplus = ends[-1] - documents
    # Rounding can give away more documents than there are; upstream then takes the surplus from every boundary, which
    # can make the first one negative: an empty training set, as there.
    ends = [max(end - surplus, 0) for end in ends]
    return range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2])


def _parse(split: str) -> list[float]:
    separator = "," if "," in split else "/"
    try:
        shares = [float(part) for part in split.split(separator)]
    except ValueError:
        raise DataError(
            f"split: {split!r} is not a list of numbers", hint='write the three shares, such as split: "969, 30, 1"'
        ) from None
    if any(share < 0 or not math.isfinite(share) for share in shares) or sum(shares[:3]) <= 0:
        raise DataError(
            f"split: {split!r} has a negative share or none above zero", hint='write shares such as split: "969, 30, 1"'
        )
    return [*shares, 0.0, 0.0][:3]

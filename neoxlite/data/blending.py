"""Several datasets read as one, in the proportions of their weights.

Equal to GPT-NeoX (megatron/data/blendable_dataset.py and data_utils.py at ea7aefd8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.errors import DataError

MAX_DATASETS: Final = 254  # the order is kept in one byte a sample
_HEADROOM: Final = 1.005  # upstream builds 0.5 % more samples than a weight asks for
_STRETCHES: Final = 1024  # at most: what they have taken fits into a processor's cache
_STRETCH_SAMPLES: Final = 1024  # at least: shorter ones would be made again more often


def normalize_weights(weights: Sequence[float], key: str = "weights") -> list[float]:
    """Return the weights divided by their sum. Raises DataError, naming ``key``, if one is negative or all are zero."""
    total = sum(weights)
    if not weights or any(weight < 0 or not math.isfinite(weight) for weight in weights) or total <= 0:
        raise DataError(
            f"{key}: {list(weights)} must be numbers from 0 up, not all zero", hint="give one weight for each dataset"
        )
    return [weight / total for weight in weights]


def samples_per_dataset(weights: Sequence[float], num_samples: int) -> list[int]:
    """Return how many samples to prepare of each dataset; ``weights`` add up to 1."""
    return [math.ceil(num_samples * weight * _HEADROOM) for weight in weights]


def weights_by_documents(documents: Sequence[int], alpha: float) -> list[float]:
    """Return weights from document counts: share ** alpha, normalised, times (1 - share), normalised.

    ``alpha`` < 1 raises small datasets (arXiv:1911.02116, section 3.1); the second factor is GPT-NeoX's own. A single
    dataset, for which that factor is zero, gets weight 1.
    """
    if len(documents) == 1:
        return [1.0]
    shares = [count / sum(documents) for count in documents]
    powers = [share**alpha for share in shares]
    weights = [power / sum(powers) * (1 - share) for power, share in zip(powers, shares, strict=True)]
    return [weight / sum(weights) for weight in weights]


def blend_order(weights: Sequence[float], size: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Choose the dataset of each sample: always the one that lags most behind its share, ties to the first.

    Args:
        weights: share of each dataset; they add up to 1.
        size: samples in all.

    Returns:
        Dataset number (uint8 [size]) and number within the dataset (int64 [size]) of each sample.

    Raises:
        DataError: there are more than 254 datasets.
    """
    if len(weights) > MAX_DATASETS:
        raise DataError(f"{len(weights)} datasets in one list; at most {MAX_DATASETS} can be mixed", hint="merge some")
    order, within = _order(np.array(weights), size), np.empty(size, np.int64)
    for number in range(len(weights)):
        own = order == number
        within[own] = np.arange(np.count_nonzero(own))
    return order, within


def _order(weights: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.uint8]:
    """Return the dataset of each sample.

    Each sample depends on all before it, and one by one they take minutes. So stretches of the order are made side by
    side, from guesses of what was taken before them, and made again from what the stretch before them ended with until
    none begins otherwise: that is the order from one end to the other. Twice is mostly enough, for the rule leads
    different beginnings to one end: what has been taken too often is taken later.
    """
    count = max(1, min(_STRETCHES, size // _STRETCH_SAMPLES))
    length = -(-size // count)
    first = np.arange(count) * length
    # What is due before each stretch, in whole numbers that add up to all of it: the largest remainders are rounded up,
    # for what lags most is taken next. With small weights another guess would hold over many stretches.
    due = weights * first[:, None]
    begins = np.floor(due)
    place = (begins - due).argsort(axis=1, kind="stable").argsort(axis=1)
    begins += place < (first - begins.sum(axis=1))[:, None]
    ends, order = np.empty_like(begins), np.empty((count, length), np.uint8)
    todo = np.arange(count)
    while todo.size:
        order[todo], ends[todo] = _stretches(weights, first[todo], begins[todo], length)
        todo = 1 + np.flatnonzero((begins[1:] != ends[:-1]).any(axis=1))
        begins[todo] = ends[todo - 1]
    return order.reshape(-1)[:size]


def _stretches(
    weights: npt.NDArray[np.float64], first: npt.NDArray[np.int64], taken: npt.NDArray[np.float64], length: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Return ``length`` choices from each of the samples ``first`` on, and what is taken behind them.

    Args:
        taken: of each dataset before them, shape [stretches, datasets].
    """
    order, rows = np.empty((length, first.size), np.uint8), np.arange(first.size)
    taken = taken.copy()
    for step in range(length):
        best = (np.maximum(first + step, 1)[:, None] * weights - taken).argmax(axis=1)
        taken[rows, best] += 1
        order[step] = best
    return order.T, taken


class BlendedDataset:
    """Weighted mixture of datasets; as long as all of them together.

    Args:
        datasets: the members, all with the same sequence length.
        order, within: of `blend_order`.
    """

    def __init__(
        self,
        datasets: Sequence[GPTDataset],
        order: npt.NDArray[np.integer[Any]],
        within: npt.NDArray[np.integer[Any]],
    ) -> None:
        self.datasets = list(datasets)
        self._order, self._within = order, within

    def __len__(self) -> int:
        return self._order.size

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        """Return sample ``number``, int64 [seq_length + 1]. Raises IndexError outside 0 to len(self) - 1."""
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return self.datasets[int(self._order[number])].sample(int(self._within[number]))

"""Samples of ``seq_length + 1`` tokens, read by number."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from neoxlite.data.index_map import IndexMap
from neoxlite.data.indexed import IndexedDataset
from neoxlite.errors import DataError


class SampleDataset(Protocol):
    """What the loader reads: numbered samples of equal length."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]: ...


class GPTDataset:
    """The samples of one split of one dataset, in shuffled order.

    As in GPT-NeoX (megatron/data/gpt2_dataset.py at ea7aefd8), the length is one less than there are samples, and the
    last one is reached by a blend only.
    """

    def __init__(self, dataset: IndexedDataset, index_map: IndexMap, seq_length: int) -> None:
        self.dataset = dataset
        self.index_map = index_map
        self.seq_length = seq_length

    def __len__(self) -> int:
        return self.index_map.shuffle_idx.size - 1

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        """Return sample ``number``, int64 [seq_length + 1]. Raises IndexError outside 0 to len(self) - 1."""
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return self.sample(number)

    def sample(self, number: int) -> npt.NDArray[np.int64]:
        """Return sample ``number`` of an endless sequence that begins again when the samples are used up.

        Raises:
            DataError: the sizes or offsets of the index do not lead to that many tokens.
        """
        samples = self.index_map.shuffle_idx.size
        if number >= samples:
            number %= max(samples - 1, 1)
        place = int(self.index_map.shuffle_idx[number])
        (first, offset), (last, end) = self.index_map.sample_idx[place : place + 2].tolist()
        out = np.empty(self.seq_length + 1, np.int64)
        filled = 0
        for position in range(first, last + 1):
            begin = offset if position == first else 0
            length = end + 1 - begin if position == last else None
            part = self.dataset.get(int(self.index_map.doc_idx[position]), begin, length)
            if filled + part.size > out.size:
                break
            out[filled : filled + part.size] = part
            filled += part.size
        if filled != out.size:
            raise DataError(
                f"{self.dataset.prefix}: sample {place} does not have {out.size} tokens: the index is damaged",
                hint=f"check it with `neoxlite data inspect {self.dataset.prefix}`",
            )
        return out

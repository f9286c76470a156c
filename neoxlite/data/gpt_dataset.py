"""Samples of ``seq_length + 1`` tokens, read by number."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from neoxlite.data.index_map import IndexMap
from neoxlite.data.indexed import IndexedDataset


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
        """Return sample ``number`` of an endless sequence that begins again when the samples are used up."""
        samples = self.index_map.shuffle_idx.size
        if number >= samples:
            number %= max(samples - 1, 1)
        place = int(self.index_map.shuffle_idx[number])
        (first, offset), (last, end) = self.index_map.sample_idx[place : place + 2].tolist()
        out = np.empty(self.seq_length + 1, np.int64)
        if first == last:
            out[:] = self.dataset.get(int(self.index_map.doc_idx[first]), offset, end - offset + 1)
            return out
        filled = 0
        for position in range(first, last + 1):
            part = self.dataset.get(
                int(self.index_map.doc_idx[position]),
                offset if position == first else 0,
                end + 1 if position == last else None,
            )
            out[filled : filled + part.size] = part
            filled += part.size
        return out

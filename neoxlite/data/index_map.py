"""The order in which a dataset's tokens become samples: document, sample and shuffle index.

Equal to GPT-NeoX's "packed" samples (megatron/data/gpt2_dataset.py at ea7aefd8): documents are repeated for as many
epochs as needed, shuffled as one list, laid end to end and cut into samples of ``seq_length + 1`` tokens that share
one token with their neighbour; the samples are then shuffled with the same random stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neoxlite.errors import DataError

# GPT-NeoX picks wider types from these lengths on; the order does not depend on it, the cached files do.
_INT32_SAMPLES = 2**31 - 1
_UINT32_SHUFFLE = 2**32 - 2
_DOCUMENTS_AT_ONCE = 1 << 17  # so that what is computed for them stays in the processor's cache


@dataclass(frozen=True)
class IndexMap:
    """Index arrays of one split.

    Attributes:
        doc_idx: sequence numbers in the order read, int32 [epochs * documents].
        sample_idx: row i is the start of sample i as (position in doc_idx, token offset), int32 [samples + 1, 2].
        shuffle_idx: order of the samples, uint32 [samples].
        epochs: how often each document occurs.
    """

    doc_idx: npt.NDArray[np.integer[Any]]
    sample_idx: npt.NDArray[np.integer[Any]]
    shuffle_idx: npt.NDArray[np.integer[Any]]
    epochs: int


def epochs_needed(tokens_per_epoch: int, seq_length: int, num_samples: int) -> int:
    """Return the smallest number of epochs whose tokens give ``num_samples`` samples (each needs one token more)."""
    return -(-(num_samples * seq_length + 1) // tokens_per_epoch)


def build_index_map(
    sizes: npt.NDArray[np.integer[Any]],
    documents: range | npt.NDArray[np.integer[Any]],
    *,
    num_samples: int | None,
    seq_length: int,
    seed: int,
    epochs: int | None = None,
) -> IndexMap:
    """Compute the index arrays.

    Args:
        sizes: tokens of every sequence of the dataset.
        documents: the sequence numbers that belong to the split (a range with step 1, or an array).
        num_samples: samples wanted; decides the epochs. None with ``epochs`` given instead.
        seq_length: tokens of a sample, without the one shared with the next sample.
        seed: of the random stream, 0 to 2**32 - 1.
        epochs: how often to read each document, in place of ``num_samples``.

    Raises:
        DataError: no tokens, too few for one sample, a damaged size, or a seed that numpy refuses.
    """
    if seq_length < 1:
        raise DataError(f"seq_length is {seq_length}; it must be at least 1", hint="set seq_length")
    if not 0 <= seed < 2**32:
        raise DataError(f"seed is {seed}; the order of the data needs 0 to {2**32 - 1}", hint="choose another seed")
    own_sizes = sizes[documents.start : documents.stop] if isinstance(documents, range) else sizes[documents]
    if own_sizes.size and int(own_sizes.min()) < 0:
        raise DataError("a sequence has a negative size", hint="check the dataset with `neoxlite data inspect PREFIX`")
    tokens_per_epoch = int(np.sum(own_sizes, dtype=np.int64))
    if tokens_per_epoch == 0:
        raise DataError(f"{len(documents)} documents hold no tokens", hint="give a dataset with text, or another split")
    if epochs is None:
        if num_samples is None:
            raise ValueError("either num_samples or epochs is needed")
        epochs = epochs_needed(tokens_per_epoch, seq_length, num_samples)
    samples = (epochs * tokens_per_epoch - 1) // seq_length
    if samples < 1:
        raise DataError(
            f"{epochs * tokens_per_epoch} tokens are too few for one sample of {seq_length} + 1 tokens",
            hint="give more text or set a smaller seq_length",
        )
    random = np.random.RandomState(seed)
    doc_idx = _shuffled(_repeated(documents, epochs), np.int32, random)
    sample_idx = sample_starts(sizes, doc_idx, samples, seq_length)
    shuffle_idx = _shuffled(np.arange(samples), np.uint32 if samples < _UINT32_SHUFFLE else np.int64, random)
    return IndexMap(doc_idx, sample_idx, shuffle_idx, epochs)


def _repeated(documents: range | npt.NDArray[np.integer[Any]], epochs: int) -> npt.NDArray[np.int64]:
    """Return the documents ``epochs`` times, with no second copy of them all in memory."""
    if isinstance(documents, range) and epochs == 1:
        return np.arange(documents.start, documents.stop, dtype=np.int64)
    numbers = np.empty(epochs * len(documents), np.int64)
    numbers.reshape(epochs, -1)[:] = (
        np.arange(documents.start, documents.stop, dtype=np.int32) if isinstance(documents, range) else documents
    )
    return numbers


def _shuffled(
    numbers: npt.NDArray[np.int64], dtype: type[np.integer[Any]], random: np.random.RandomState
) -> npt.NDArray[np.integer[Any]]:
    """Return ``numbers``, which is used up, in random order and as another type.

    The order does not depend on the type, but numpy is faster with 8 bytes. They are narrowed in their own memory.
    """
    random.shuffle(numbers)
    size, itemsize = numbers.size, np.dtype(dtype).itemsize
    if itemsize == numbers.itemsize:
        return numbers
    narrow = numbers.view(dtype)
    for start in range(0, size, _DOCUMENTS_AT_ONCE):
        stop = min(start + _DOCUMENTS_AT_ONCE, size)
        narrow[start:stop] = numbers[start:stop]  # behind what is still to be read, or by numpy's own copy
    del narrow
    numbers.resize(-(-size * itemsize // numbers.itemsize), refcheck=False)
    return numbers.view(dtype)[:size]


def sample_starts(
    sizes: npt.NDArray[np.integer[Any]], doc_idx: npt.NDArray[np.integer[Any]], samples: int, seq_length: int
) -> npt.NDArray[np.integer[Any]]:
    """Return the (position in doc_idx, token offset) of flat tokens 0, s, 2s, ..., shape [samples + 1, 2]."""
    wide = 2 * (samples + 1) >= _INT32_SAMPLES
    starts = np.empty((samples + 1, 2), np.int64 if wide else np.int32)
    done = before = 0  # samples placed, tokens passed
    for first in range(0, doc_idx.size, _DOCUMENTS_AT_ONCE):
        lengths = sizes[doc_idx[first : first + _DOCUMENTS_AT_ONCE]]
        ends = np.cumsum(lengths, dtype=np.int64)
        ends += before
        before = int(ends[-1])
        inside = min(-(-before // seq_length), samples + 1)
        tokens = np.arange(done, inside, dtype=np.int64) * seq_length
        where = np.searchsorted(ends, tokens, side="right")  # skips empty documents
        starts[done:inside, 0] = where + first
        starts[done:inside, 1] = tokens - (ends[where] - lengths[where])
        done = inside
    starts[0] = 0  # upstream begins at position 0 also when that document is empty
    return starts

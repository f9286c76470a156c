"""Index maps on disk, so that a job with many processes computes them once and shares their pages.

One file beside the dataset holds the arrays. Its name carries a hash of all that they depend on: GPT-NeoX's own names
hold neither the split nor the document range nor anything of the content, so that a changed dataset silently keeps its
old order there. The order of a blend, whose making takes longer than reading it, is kept in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.data.array_file import map_arrays, warn_damaged, write_arrays
from neoxlite.data.blending import blend_order
from neoxlite.data.index_map import IndexMap, build_index_map
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.upstream_cache import read_upstreams

_LAYOUT: Final = 1  # raise it when the arrays or the file change


@dataclass(frozen=True)
class IndexRequest:
    """Everything that an index map depends on.

    Attributes:
        dataset: the tokens.
        documents: the range of sequence numbers that belongs to the split.
        name: "train", "valid" or "test", with the number in a weighted list ("train_0"); only for the file name.
        num_samples: samples wanted; None with ``epochs`` given instead.
        seq_length: tokens of a sample.
        seed: of the shuffling.
        epochs: how often to read each document, in place of ``num_samples``.
    """

    dataset: IndexedDataset
    documents: range
    name: str
    num_samples: int | None
    seq_length: int
    seed: int
    epochs: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of the split, once."""
        return int(np.sum(self.dataset.sizes[self.documents.start : self.documents.stop], dtype=np.int64))

    def build(self) -> IndexMap:
        """Compute the arrays in memory. Raises DataError as `build_index_map` does."""
        return build_index_map(
            self.dataset.sizes,
            self.documents,
            num_samples=self.num_samples,
            seq_length=self.seq_length,
            seed=self.seed,
            epochs=self.epochs,
        )

    def cache_path(self) -> Path:
        """Return the file of these arrays, beside the dataset."""
        wanted = str(self.num_samples) if self.epochs is None else f"{self.epochs}epochs"
        return Path(f"{self.dataset.prefix}_{self.name}_{self._digest(wanted)}.indexmap")

    def order(self, epochs: int) -> str:
        """Return a digest of what the order of the samples over ``epochs`` epochs depends on."""
        return self._digest(f"{epochs}epochs")

    def _digest(self, wanted: str) -> str:
        settings = f"{_LAYOUT} {self.documents.start} {self.documents.stop} {wanted} {self.seq_length} {self.seed} "
        digest = hashlib.blake2b(settings.encode(), digest_size=12)
        # The order depends on the sizes of the split's own sequences alone; a split that keeps them keeps its file.
        digest.update(np.ascontiguousarray(self.dataset.sizes[self.documents.start : self.documents.stop]).data)
        return digest.hexdigest()


def build_index(
    request: IndexRequest, *, is_builder: bool = True, wait: Callable[[], None] | None = None
) -> tuple[IndexMap, Path | None]:
    """Return the index map of a split, from its file where there is one.

    Args:
        request: what to build.
        is_builder: true in the one process that writes the file. The others read it, or compute the arrays in memory
            where it could not be written (the result is the same).
        wait: a barrier over the builder and the others, with a time limit of its own; None when there is nobody to wait
            for. The builder reaches it also when it fails, so that nobody is left waiting.

    Returns:
        The arrays, and the file they are mapped from (None: in memory, or from files of GPT-NeoX).

    Raises:
        DataError: as `build_index_map`.
    """
    path = request.cache_path()
    if not is_builder:
        if wait is not None:
            wait()
        found = _read(path)
        if found is not None:
            return found, path
        return read_upstreams(request) or request.build(), None
    try:
        return _read_or_write(request, path)
    finally:
        if wait is not None:
            wait()


def _read_or_write(request: IndexRequest, path: Path) -> tuple[IndexMap, Path | None]:
    found = _read(path)
    if found is not None:
        return found, path
    upstreams = read_upstreams(request)
    if upstreams is not None:
        return upstreams, None
    built = request.build()
    if not write_arrays(path, [np.array([built.epochs]), built.doc_idx, built.sample_idx, built.shuffle_idx]):
        return built, None
    # Map what was written, so that all processes of a node share its pages.
    written = _read(path)
    return (built, None) if written is None else (written, path)


def _read(path: Path) -> IndexMap | None:
    """Map an index file; None where there is none or it is damaged."""
    arrays = map_arrays(path, 4)
    if arrays is None:
        return None
    epochs, doc_idx, sample_idx, shuffle_idx = arrays
    if epochs.shape != (1,) or doc_idx.ndim != 1 or sample_idx.shape != (shuffle_idx.size + 1, 2):
        warn_damaged(path, "its arrays do not fit each other")
        return None
    return IndexMap(doc_idx, sample_idx, shuffle_idx, int(epochs[0]))


def build_blend(
    prefix: str, name: str, weights: Sequence[float], lengths: Sequence[int], *, is_builder: bool = True
) -> tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.integer[Any]]]:
    """Return the order of a blend as `blend_order` gives it, from its file where there is one.

    Args:
        prefix: dataset beside which the file is, the first of the list.
        name: "train", "valid" or "test".
        weights: share of each dataset; they add up to 1.
        lengths: samples of each dataset.
        is_builder: true in the one process that writes the file.
    """
    settings = f"{_LAYOUT} {[weight.hex() for weight in weights]} {list(lengths)}"
    digest = hashlib.blake2b(settings.encode(), digest_size=12).hexdigest()
    path = Path(f"{prefix}_{name}_blend_{digest}.indexmap")
    size = sum(lengths)
    found = map_arrays(path, 2)
    if found is not None:
        if found[0].shape == found[1].shape == (size,):
            return found[0], found[1]
        warn_damaged(path, "its arrays do not fit the datasets")
    order, within = blend_order(weights, size)
    if is_builder and write_arrays(path, [order, within]):
        written = map_arrays(path, 2)
        if written is not None:
            return written[0], written[1]
    return order, within

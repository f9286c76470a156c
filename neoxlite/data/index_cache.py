"""Index maps on disk, so that a job with many processes computes them once and shares their pages.

One file beside the dataset holds the three arrays as consecutive ``.npy`` blocks. Its name carries a hash of all that
the arrays depend on: GPT-NeoX's own names hold neither the split nor the document range nor anything of the content,
so that a changed dataset silently keeps its old order there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.common.files import replacing
from neoxlite.data.index_map import IndexMap, build_index_map
from neoxlite.data.indexed import IndexedDataset

_LAYOUT: Final = 1  # raise it when the arrays or the file change
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexRequest:
    """Everything that an index map depends on.

    Attributes:
        dataset: the tokens.
        documents: the range of sequence numbers that belongs to the split.
        name: "train", "valid" or "test", with the number in a weighted list ("train_0"); only for the file name.
        num_samples: samples wanted.
        seq_length: tokens of a sample.
        seed: of the shuffling.
    """

    dataset: IndexedDataset
    documents: range
    name: str
    num_samples: int
    seq_length: int
    seed: int

    def build(self) -> IndexMap:
        """Compute the arrays in memory. Raises DataError as `build_index_map` does."""
        return build_index_map(
            self.dataset.sizes,
            self.documents,
            num_samples=self.num_samples,
            seq_length=self.seq_length,
            seed=self.seed,
        )

    def cache_path(self) -> Path:
        """Return the file of these arrays, beside the dataset."""
        settings = (
            f"{_LAYOUT} {self.documents.start} {self.documents.stop} {self.num_samples} {self.seq_length} {self.seed} "
        )
        digest = hashlib.blake2b(settings.encode(), digest_size=12)
        # The order depends on the sizes of the split's own sequences alone; a split that keeps them keeps its file.
        digest.update(np.ascontiguousarray(self.dataset.sizes[self.documents.start : self.documents.stop]).data)
        return Path(f"{self.dataset.prefix}_{self.name}_{digest.hexdigest()}.indexmap")


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
        The arrays, and the file they are mapped from (None: in memory).

    Raises:
        DataError: as `build_index_map`.
    """
    path = request.cache_path()
    if not is_builder:
        if wait is not None:
            wait()
        found = _read(path)
        return (found, path) if found is not None else (request.build(), None)
    try:
        return _read_or_write(request, path)
    finally:
        if wait is not None:
            wait()


def _read_or_write(request: IndexRequest, path: Path) -> tuple[IndexMap, Path | None]:
    found = _read(path)
    if found is not None:
        return found, path
    built = request.build()
    try:
        with replacing(path) as file:
            for array in (np.array([built.epochs]), built.doc_idx, built.sample_idx, built.shuffle_idx):
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        _LOG.warning("%s cannot be written (%s); every process keeps its own index in memory", path, error.strerror)
        return built, None
    # Map what was written, so that all processes of a node share its pages.
    written = _read(path)
    return (built, None) if written is None else (written, path)


def _read(path: Path) -> IndexMap | None:
    """Map an index file; None where there is none or it is damaged."""
    try:
        with path.open("rb") as file:
            epochs, doc_idx, sample_idx, shuffle_idx = (_map_array(path, file) for _ in range(4))
            complete = file.tell() == path.stat().st_size
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _LOG.warning("%s is damaged (%s) and will be made again", path, error)
        return None
    samples = shuffle_idx.size
    if not complete or epochs.size != 1 or sample_idx.shape != (samples + 1, 2) or doc_idx.ndim != 1:
        _LOG.warning("%s is damaged (its arrays do not fit each other) and will be made again", path)
        return None
    return IndexMap(doc_idx, sample_idx, shuffle_idx, int(epochs[0]))


def _map_array(path: Path, file: IO[bytes]) -> npt.NDArray[Any]:
    """Map the ``.npy`` block at the file's position and move behind it. Raises ValueError if it is not whole."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an array of .npy version 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "iu":
        raise ValueError(f"dtype {dtype} where integers belong")
    array = np.memmap(path, dtype, mode="r", offset=file.tell(), shape=shape)
    file.seek(array.nbytes, 1)
    return array

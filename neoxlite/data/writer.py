"""Write token datasets, byte for byte as GPT-NeoX's builder does (megatron/data/indexed_dataset.py at ea7aefd8)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from neoxlite.common.files import replacing
from neoxlite.data.index_file import MMAP_HEADER, MMAP_MAGIC, VERSION, dtype_code
from neoxlite.data.indexed import IndexedDataset, bin_path, idx_path
from neoxlite.errors import DataError

_UINT16_VOCABULARY = 65500  # upstream's border; ids of larger vocabularies get 4 bytes
_COPY_TOKENS = 1 << 22
_INDEX_CHUNK = 1 << 20


def token_dtype(vocab_size: int | None) -> np.dtype[Any]:
    """Return the dtype that upstream chooses for a vocabulary (before padding), int32 if its size is not known."""
    small = vocab_size is not None and vocab_size < _UINT16_VOCABULARY
    return np.dtype("<u2") if small else np.dtype("<i4")


class DatasetWriter:
    """Context manager that writes ``prefix.bin`` and ``prefix.idx``.

    The files appear under these names when the block ends without an error, and not at all otherwise. Memory: 4 bytes a
    sequence and 8 a document.

    Args:
        prefix: path without ``.bin``/``.idx``; its folder must exist.
        dtype: type of the stored tokens, see `token_dtype`.

    Attributes:
        num_tokens: tokens written so far.
        largest_id: the largest of them, at least 0.

    Raises:
        DataError: the folder does not exist, or a final name is taken by a folder.
        OSError: the folder cannot be written, the name is too long, or the disk is full.
    """

    def __init__(self, prefix: str | Path, dtype: npt.DTypeLike) -> None:
        self.prefix = str(prefix)
        self.dtype = np.dtype(dtype)
        self._code = dtype_code(self.dtype)
        self._limits = np.iinfo(self.dtype)
        self._sizes = array("i")
        self._documents = array("q", [0])
        self.largest_id = 0
        self.num_tokens = 0
        self._stack = ExitStack()
        self._bin: IO[bytes]
        self._idx: IO[bytes]

    def __enter__(self) -> DatasetWriter:
        folder = bin_path(self.prefix).parent
        if not folder.is_dir():
            raise DataError(f"{self.prefix}: the folder {folder} does not exist", hint=f"make it: mkdir -p {folder}")
        for path in (bin_path(self.prefix), idx_path(self.prefix)):
            if path.is_dir():  # the rename at the end would fail, perhaps hours later
                raise DataError(f"{path} is a folder, so no file can have that name", hint="choose another prefix")
        with ExitStack() as stack:
            # Left in reverse: the tokens get their name first, and a reader finds a dataset when it has an index.
            self._idx = stack.enter_context(replacing(idx_path(self.prefix)))
            self._bin = stack.enter_context(replacing(bin_path(self.prefix)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._write_index()
                # An older dataset of this name must not be found with the new tokens.
                idx_path(self.prefix).unlink(missing_ok=True)
            except BaseException as failure:
                self._stack.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._stack.__exit__(kind, error, trace)

    def add_sequence(self, tokens: Sequence[int] | npt.NDArray[Any]) -> None:
        """Append one sequence, which may be empty. Raises DataError if a token does not fit the dtype."""
        values = np.asarray(tokens)
        if values.size == 0:
            self._sizes.append(0)
            return
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise DataError(
                f"{self.prefix}: tokens of {values.dtype} and shape {values.shape}", hint="give whole numbers"
            )
        self._bin.write(self._stored(values).tobytes())
        self._sizes.append(values.size)

    def end_document(self) -> None:
        """Set a document boundary behind the sequences added so far; twice in a row makes an empty document."""
        self._documents.append(len(self._sizes))

    def add_document(self, tokens: Sequence[int] | npt.NDArray[Any]) -> None:
        """Append a document of one sequence."""
        self.add_sequence(tokens)
        self.end_document()

    def add_documents(self, tokens: npt.NDArray[np.integer[Any]], sizes: npt.NDArray[np.integer[Any]]) -> None:
        """Append documents of one sequence each, laid end to end in ``tokens``.

        Args:
            tokens: shape [sum of sizes].
            sizes: tokens of each document, shape [documents].

        Raises:
            DataError: a token does not fit the dtype.
        """
        self.add_tokens(tokens)
        before = len(self._sizes)
        self._sizes.frombytes(sizes.astype(np.int32).tobytes())
        self._documents.frombytes(np.arange(before + 1, before + 1 + sizes.size, dtype=np.int64).tobytes())

    def add_tokens(self, tokens: npt.NDArray[np.integer[Any]]) -> None:
        """Append tokens without saying what they belong to; `set_layout` then says it for all tokens."""
        if tokens.size:
            self._bin.write(self._stored(tokens).data)

    def set_layout(self, sizes: npt.NDArray[np.int64], document_ends: npt.NDArray[np.int64]) -> None:
        """Divide all tokens into sequences of ``sizes``, and these into documents by the sequence behind each."""
        self._sizes = array("i", sizes.astype(np.int32).tobytes())
        self._documents = array("q", [0, *document_ends.tolist()])

    def append(self, other: IndexedDataset) -> None:
        """Append all of another dataset with its document boundaries, in bounded memory.

        Where those are missing (upstream's own merge loses them), each sequence becomes a document.

        Raises:
            DataError: a token does not fit the dtype.
        """
        whole = other.has_document_boundaries
        ends = other.documents[1:] if whole else np.arange(1, len(other) + 1)
        self.append_documents(other, ends, 0, len(ends))

    def append_documents(
        self, other: IndexedDataset, ends: npt.NDArray[np.integer[Any]], first: int, last: int
    ) -> None:
        """Append documents ``first`` to ``last`` - 1 of another dataset, in bounded memory.

        Args:
            ends: the sequence number behind each document of ``other``.

        Raises:
            DataError: a token does not fit the dtype.
        """
        begin = int(ends[first - 1]) if first else 0
        sequences = range(begin, int(ends[last - 1]) if last else 0)
        before = len(self._sizes)
        token = int(np.sum(other.sizes[: sequences.start], dtype=np.int64))
        stop = token + int(np.sum(other.sizes[sequences.start : sequences.stop], dtype=np.int64))
        for start in range(token, stop, _COPY_TOKENS):
            self.add_tokens(other.tokens(start, min(start + _COPY_TOKENS, stop)))
        for start in range(sequences.start, sequences.stop, _INDEX_CHUNK):
            chunk = other.sizes[start : min(start + _INDEX_CHUNK, sequences.stop)]
            self._sizes.frombytes(chunk.astype(np.int32).tobytes())
        self._documents.frombytes((ends[first:last].astype(np.int64) - sequences.start + before).tobytes())

    @property
    def num_documents(self) -> int:
        """Documents ended so far."""
        return len(self._documents) - 1

    def _stored(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        smallest, largest = 0 if values.dtype.kind == "u" else int(values.min()), int(values.max())
        if smallest < self._limits.min or largest > self._limits.max:
            raise DataError(
                f"{self.prefix}: tokens from {smallest} to {largest} do not fit {self.dtype.name}",
                hint="give the vocabulary size of the tokenizer that made the tokens",
            )
        self.largest_id = max(self.largest_id, largest)
        self.num_tokens += values.size
        return np.ascontiguousarray(values, self.dtype)

    def _write_index(self) -> None:
        n, m = len(self._sizes), len(self._documents)
        self._idx.write(MMAP_HEADER.pack(MMAP_MAGIC, VERSION, self._code, n, m))
        sizes = np.frombuffer(self._sizes, np.int32)
        self._idx.write(sizes.astype("<i4", copy=False).tobytes())
        position = 0
        for start in range(0, n, _INDEX_CHUNK):
            bytes_each = sizes[start : start + _INDEX_CHUNK].astype(np.int64) * self.dtype.itemsize
            ends = position + np.cumsum(bytes_each)
            self._idx.write((ends - bytes_each).astype("<i8", copy=False).tobytes())
            position = int(ends[-1])
        self._idx.write(np.frombuffer(self._documents, np.int64).astype("<i8", copy=False).tobytes())

"""Read-only token datasets: a ``.bin`` file of tokens and its ``.idx`` index, both memory-mapped."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neoxlite.data.index_file import IntArray, read_index
from neoxlite.data.system_errors import reading
from neoxlite.errors import DataError
from neoxlite.tokenizers.kinds import stand_in

_MEGATRONS_LIST = re.compile(r"[\d.]+\s+\S|.*,")  # "0.3 a 0.7 b", and "a,b"
_SEVERAL = "this is the place of one dataset; several are train_data_paths: [a, b] with train_data_weights: [0.3, 0.7]"
_CHUNK_SEQUENCES = 1 << 20
_CHUNK_TOKENS = 1 << 22


def bin_path(prefix: str | Path) -> Path:
    """Return the token file of a dataset prefix."""
    return Path(f"{prefix}.bin")


def idx_path(prefix: str | Path) -> Path:
    """Return the index file of a dataset prefix."""
    return Path(f"{prefix}.idx")


class IndexedDataset:
    """Sequences of tokens by number, read straight from the page cache.

    Args:
        prefix: path of the pair without ``.bin``/``.idx``. The format (mmap or the older cached one) is found from the
            file itself, so GPT-NeoX's ``data_impl`` is not needed.

    Raises:
        DataError: a file is missing, damaged, or the two do not belong together.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        with reading(f"dataset {prefix}"):
            self._open()

    def _open(self) -> None:
        _check_exists(self.prefix)
        self._index = read_index(idx_path(self.prefix))
        tokens_path = bin_path(self.prefix)
        found, expected = tokens_path.stat().st_size, self._index.bin_bytes
        if found != expected:
            _refuse_stand_in(tokens_path)
            raise DataError(
                f"{tokens_path}: {found} bytes, but its index {idx_path(self.prefix).name} expects {expected}; "
                f"{self._last_whole(found)}",
                hint="they do not belong together or one is truncated: copy both again, write the dataset again, or "
                f"recover what is complete with `neoxlite data repair {self.prefix} --output PREFIX`",
            )
        if self.num_tokens * self.dtype.itemsize != found:
            raise DataError(
                f"{idx_path(self.prefix)}: the sizes add up to {self.num_tokens} tokens, but {tokens_path.name} holds "
                f"{found // self.dtype.itemsize}",
                hint=f"the index is damaged: copy it again, or `neoxlite data repair {self.prefix} --output PREFIX`",
            )
        self._tokens: npt.NDArray[Any] = (
            np.memmap(tokens_path, self.dtype, mode="r") if found else np.empty(0, self.dtype)
        )

    def _last_whole(self, found: int) -> str:
        """Say which document is the last that a token file of ``found`` bytes holds whole."""
        ends = np.cumsum(self.sizes, dtype=np.int64) * self.dtype.itemsize
        whole = int(np.searchsorted(ends, found, side="right"))
        told = (
            f"of {len(self)} sequences {whole} are complete" if whole else f"none of {len(self)} sequences is complete"
        )
        boundaries = self.documents[1:]
        if whole == 0 or not self.has_document_boundaries or (boundaries[1:] < boundaries[:-1]).any():
            return told
        documents = int(np.searchsorted(boundaries, whole, side="right"))
        last = f"the last complete document is {documents - 1}" if documents else "no document is complete"
        return f"{told}, {last} (of 0 to {boundaries.size - 1})"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored tokens."""
        return self._index.dtype

    @property
    def kind(self) -> str:
        """File format: "mmap" or "cached"."""
        return self._index.kind

    @property
    def sizes(self) -> IntArray:
        """Tokens of each sequence, shape [len(self)]."""
        return self._index.sizes

    @property
    def documents(self) -> IntArray:
        """Document boundaries as sequence numbers, from 0 to len(self); one more than there are documents."""
        return self._index.documents

    @cached_property
    def num_tokens(self) -> int:
        """Tokens in all sequences."""
        return int(np.sum(self.sizes, dtype=np.int64))

    @property
    def has_document_boundaries(self) -> bool:
        """Whether the boundaries cover all sequences; files merged by GPT-NeoX (merge_file_) lack them."""
        return self.documents.size > 0 and int(self.documents[-1]) == len(self)

    @property
    def num_documents(self) -> int:
        """Documents; the number of sequences where the boundaries are missing."""
        return self.documents.size - 1 if self.has_document_boundaries else len(self)

    def __len__(self) -> int:
        return self.sizes.size

    def __getitem__(self, number: int) -> npt.NDArray[Any]:
        """Return all tokens of one sequence, in the stored dtype."""
        return self.get(number)

    def get(self, number: int, offset: int = 0, length: int | None = None) -> npt.NDArray[Any]:
        """Return a view of ``length`` tokens of sequence ``number`` from ``offset`` on, by default to its end."""
        first = int(self._index.pointers[number]) // self.dtype.itemsize + offset
        count = int(self.sizes[number]) - offset if length is None else length
        return self._tokens[first : first + count]

    def tokens(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return tokens ``start`` to ``stop`` of all sequences laid end to end, as a view."""
        return self._tokens[start:stop]

    def verify(self) -> DatasetSummary:
        """Read everything once, in bounded memory, and check what opening could not.

        Raises:
            DataError: a negative size, sequences that do not lie end to end, or boundaries that are no boundaries.
        """
        position, shortest, longest = 0, np.iinfo(np.int64).max, 0
        for first in range(0, len(self), _CHUNK_SEQUENCES):
            sizes = self.sizes[first : first + _CHUNK_SEQUENCES].astype(np.int64)
            ends = position + np.cumsum(sizes * self.dtype.itemsize)
            starts = np.concatenate(([position], ends[:-1]))
            wrong = (sizes < 0) | (starts != self._index.pointers[first : first + _CHUNK_SEQUENCES])
            if wrong.any():
                number = first + int(np.argmax(wrong))
                raise DataError(
                    f"{idx_path(self.prefix)}: sequence {number} has size {int(self.sizes[number])} at byte "
                    f"{int(self._index.pointers[number])}, expected byte {int(starts[number - first])}",
                    hint="the index is damaged; copy it or write the dataset again",
                )
            position = int(ends[-1])
            shortest, longest = min(shortest, int(sizes.min())), max(longest, int(sizes.max()))
        self._verify_documents()
        smallest, largest = self._token_range()
        return DatasetSummary(
            len(self), self.num_documents, self.num_tokens, min(shortest, longest), longest, smallest, largest
        )

    def _verify_documents(self) -> None:
        boundaries = self.documents
        good = boundaries.size > 0 and boundaries[0] == 0 and boundaries[-1] <= len(self)
        if not good or (boundaries[1:] < boundaries[:-1]).any():
            raise DataError(
                f"{idx_path(self.prefix)}: the document boundaries do not rise from 0 to {len(self)}",
                hint="the index is damaged; copy it or write the dataset again",
            )

    def _token_range(self) -> tuple[int, int]:
        smallest, largest = 0, 0
        for first in range(0, self._tokens.size, _CHUNK_TOKENS):
            chunk = self._tokens[first : first + _CHUNK_TOKENS]
            smallest, largest = min(smallest, int(chunk.min())), max(largest, int(chunk.max()))
        if smallest < 0:
            raise DataError(
                f"{bin_path(self.prefix)}: token id {smallest} is negative",
                hint="these are not token ids (a label dataset marks masked tokens with -100); give a token dataset",
            )
        return smallest, largest


@dataclass(frozen=True)
class DatasetSummary:
    """What `IndexedDataset.verify` counted. Sizes are in tokens; ids are the smallest (at most 0) and largest seen."""

    sequences: int
    documents: int
    tokens: int
    shortest_sequence: int
    longest_sequence: int
    smallest_id: int
    largest_id: int


def _refuse_stand_in(path: Path) -> None:
    with path.open("rb") as file:
        told = stand_in(file.read(64))
    if told is not None:
        raise DataError(f"{path}: no tokens; it is {told[0]}", hint=f"for this file {told[1]}")


def _check_exists(prefix: str) -> None:
    missing = [path for path in (idx_path(prefix), bin_path(prefix)) if not path.is_file()]
    if not missing:
        return
    given = Path(prefix)
    if given.suffix in (".bin", ".idx") and idx_path(given.with_suffix("")).is_file():
        raise DataError(
            f"{prefix}: a dataset is named by its prefix, without {given.suffix}", hint=f"write {given.with_suffix('')}"
        )
    raise DataError(
        f"no dataset {prefix}: {missing[0]} does not exist",
        hint=_SEVERAL if _MEGATRONS_LIST.match(prefix) else _near_prefixes(given),
    )


def _near_prefixes(prefix: Path) -> str:
    """Say which datasets there are, those with the most similar names first."""
    folder = prefix.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist; relative paths start at the current directory"
    names = sorted(path.stem for path in folder.glob("*.idx"))
    if not names:
        return f"there is no .idx file in {folder}; write one with `neoxlite tokenize`"
    near = [name for name in names if name.startswith(prefix.name)]
    near += [name for name in difflib.get_close_matches(prefix.name, names, 5, 0.4) if name not in near]
    return f"in {folder} there are: {', '.join((near or names)[:5])}"

"""Several datasets to one, and one to several, with their document boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neoxlite.data.dataset_info import DatasetInfo, TokenizerInfo, read_info, write_info
from neoxlite.data.indexed import IndexedDataset, bin_path
from neoxlite.data.system_errors import writing
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError


@dataclass(frozen=True)
class Written:
    """A dataset that was written."""

    prefix: str
    documents: int
    tokens: int


def merge_datasets(prefixes: Sequence[str], output: str) -> Written:
    """Write the documents of the datasets, one after the other, as one dataset, in bounded memory.

    Raises:
        DataError: a dataset is missing or damaged, two were made by different tokenizers, or the output is an input.
        NeoxliteError: the output cannot be written.
    """
    if not prefixes:
        raise DataError("no datasets to merge", hint="give the prefixes of two or more")
    datasets = [IndexedDataset(prefix) for prefix in prefixes]
    _check_distinct(prefixes, output)
    infos = [read_info(prefix) for prefix in prefixes]
    _check_one_tokenizer(prefixes, infos)
    dtype = np.result_type(*(dataset.dtype for dataset in datasets))
    with writing(output), DatasetWriter(output, dtype) as writer:
        for dataset in datasets:
            writer.append(dataset)
    known = [info for info in infos if info is not None]
    if len(known) == len(infos):
        _describe(output, writer, known[0].tokenizer, append_eod=all(info.append_eod for info in known))
    return Written(output, writer.num_documents, writer.num_tokens)


def split_dataset(prefix: str, shares: Sequence[float], outputs: Sequence[str]) -> list[Written]:
    """Write runs of documents of a dataset as datasets of their own.

    Args:
        shares: share of the documents of each output, in any unit.
        outputs: prefixes, one for each share.

    Raises:
        DataError: the dataset is missing or damaged, or a share is negative or all are zero.
        NeoxliteError: an output cannot be written.
    """
    dataset = IndexedDataset(prefix)
    for output in outputs:
        _check_distinct([prefix], output)
    if any(share < 0 or not np.isfinite(share) for share in shares) or sum(shares) <= 0:
        raise DataError(f"shares {list(shares)} must be numbers from 0 up, not all zero", hint="give, say, 90,10")
    ends = document_ends(dataset)
    borders = np.rint(np.cumsum([0.0, *shares]) / sum(shares) * ends.size).astype(np.int64).tolist()
    info = read_info(prefix)
    written = []
    for first, last, output in zip(borders[:-1], borders[1:], outputs, strict=True):
        with writing(output), DatasetWriter(output, dataset.dtype) as writer:
            writer.append_documents(dataset, ends, first, last)
        if info is not None:
            _describe(output, writer, info.tokenizer, append_eod=info.append_eod)
        written.append(Written(output, writer.num_documents, writer.num_tokens))
    return written


def document_ends(dataset: IndexedDataset) -> npt.NDArray[np.int64]:
    """Return the sequence number behind each document; each sequence is one where the boundaries are missing."""
    if dataset.has_document_boundaries:
        return dataset.documents[1:].astype(np.int64)
    return np.arange(1, len(dataset) + 1)


def _check_distinct(prefixes: Sequence[str], output: str) -> None:
    for prefix in prefixes:
        if bin_path(output).exists() and bin_path(output).samefile(bin_path(prefix)):
            raise DataError(f"{output} is both read and written", hint="choose another name for the output")


def _check_one_tokenizer(prefixes: Sequence[str], infos: Sequence[DatasetInfo | None]) -> None:
    known = [
        (prefix, info.tokenizer)
        for prefix, info in zip(prefixes, infos, strict=True)
        if info is not None and info.tokenizer is not None
    ]
    for prefix, tokenizer in known:
        if tokenizer.fingerprint != known[0][1].fingerprint:
            raise DataError(
                f"{known[0][0]} and {prefix} were made with different tokenizers ({known[0][1].vocab_size} and "
                f"{tokenizer.vocab_size} tokens)",
                hint="tokenize the text again with one tokenizer",
            )


def _describe(prefix: str, writer: DatasetWriter, tokenizer: TokenizerInfo | None, *, append_eod: bool) -> None:
    with writing(prefix):
        write_info(prefix, DatasetInfo.of(writer, tokenizer, append_eod=append_eod))

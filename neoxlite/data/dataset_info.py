"""How a dataset was made: a small JSON file beside it, which training compares with its own tokenizer."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from neoxlite.common.files import write_whole
from neoxlite.data.indexed import IndexedDataset, bin_path, idx_path
from neoxlite.data.system_errors import reading
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError
from neoxlite.tokenizers.base import Tokenizer
from neoxlite.tokenizers.encoder import CANARY

_LOG = logging.getLogger(__name__)
_SCHEMA: Final = 1
_SAMPLE_TOKENS: Final = 1 << 20
_SAMPLES: Final = 16


class TokenizerInfo(msgspec.Struct, frozen=True):
    """Which tokenizer gave the ids.

    Attributes:
        type: GPT-NeoX's name.
        vocab_size, eod: its properties.
        fingerprint: hash of the ids that it gives to fixed texts of many kinds.
    """

    type: str
    vocab_size: int
    eod: int | None
    fingerprint: str

    @classmethod
    def of(cls, tokenizer: Tokenizer, tokenizer_type: str = "") -> TokenizerInfo:
        """Describe a tokenizer."""
        ids = msgspec.json.encode([tokenizer.vocab_size, tokenizer.eod, [tokenizer.encode(text) for text in CANARY]])
        digest = hashlib.blake2b(ids, digest_size=16).hexdigest()
        return cls(tokenizer_type, tokenizer.vocab_size, tokenizer.eod, digest)


class DatasetInfo(msgspec.Struct, frozen=True):
    """What is known of a dataset since it was made.

    Attributes:
        tokenizer: that made it; None where datasets of several were merged.
        append_eod: whether documents end with the end-of-document token.
        tokens, documents, largest_id: counts, and the largest id (0 without tokens).
        bin_bytes, idx_bytes: sizes of the two files; where they differ, the dataset is another one.
        request: hash of all that it was made from.
    """

    tokenizer: TokenizerInfo | None
    append_eod: bool
    tokens: int
    documents: int
    largest_id: int
    bin_bytes: int
    idx_bytes: int
    request: str = ""
    schema: int = _SCHEMA

    @classmethod
    def of(
        cls, writer: DatasetWriter, tokenizer: TokenizerInfo | None, *, append_eod: bool, request: str = ""
    ) -> DatasetInfo:
        """Describe what a writer has written. Raises OSError."""
        return cls(
            tokenizer,
            append_eod,
            writer.num_tokens,
            writer.num_documents,
            writer.largest_id,
            bin_path(writer.prefix).stat().st_size,
            idx_path(writer.prefix).stat().st_size,
            request,
        )


def info_path(prefix: str | Path) -> Path:
    """Return the file that describes a dataset."""
    return Path(f"{prefix}.info.json")


def write_info(prefix: str, info: DatasetInfo) -> None:
    """Write the description, whole or not at all. Raises OSError."""
    write_whole(info_path(prefix), msgspec.json.format(msgspec.json.encode(info)) + b"\n")


def read_info(prefix: str) -> DatasetInfo | None:
    """Return the description of a dataset; None where there is none, or one of other files."""
    try:
        info = msgspec.json.decode(info_path(prefix).read_bytes(), type=DatasetInfo)
        sizes = (bin_path(prefix).stat().st_size, idx_path(prefix).stat().st_size)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _LOG.warning("%s is not used: %s", info_path(prefix), error)
        return None
    return info if info.schema == _SCHEMA and sizes == (info.bin_bytes, info.idx_bytes) else None


def check_dataset(dataset: IndexedDataset, tokenizer: Tokenizer, padded_vocab_size: int) -> None:
    """Refuse a dataset that another tokenizer made, before the first step.

    Where the dataset has no description, the ids of parts of it are read (the loader looks at the rest as it comes).

    Args:
        dataset: the tokens.
        tokenizer: that of the configuration.
        padded_vocab_size: rows of the embedding.

    Raises:
        DataError: an id is outside the vocabulary, or the tokenizer is not the one that made the dataset.
    """
    info = read_info(dataset.prefix)
    largest = _largest_of_sample(dataset) if info is None else info.largest_id
    if largest >= padded_vocab_size:
        raise DataError(
            f"dataset {dataset.prefix} holds token {largest}, but the vocabulary has {padded_vocab_size}",
            hint="it was made with another tokenizer; set tokenizer_type and vocab_file to that one",
        )
    if info is None or info.tokenizer is None:
        return
    own = TokenizerInfo.of(tokenizer)
    if own.fingerprint != info.tokenizer.fingerprint:
        made = info.tokenizer
        raise DataError(
            f"dataset {dataset.prefix} was made with another tokenizer: {made.type or 'one'} with {made.vocab_size} "
            f"tokens and end of document {made.eod}; this one has {own.vocab_size} and {own.eod}",
            hint=f"set the tokenizer of the dataset, or delete {info_path(dataset.prefix)} if you know better",
        )


def _largest_of_sample(dataset: IndexedDataset) -> int:
    """Return the largest id in some parts of a dataset, spread evenly."""
    largest = 0
    with reading(f"dataset {dataset.prefix}"):
        for start in np.linspace(0, max(dataset.num_tokens - _SAMPLE_TOKENS, 0), _SAMPLES, dtype=np.int64).tolist():
            part = dataset.tokens(start, start + _SAMPLE_TOKENS)
            largest = max(largest, int(part.max()) if part.size else 0)
    return largest

"""Text files to token datasets: what GPT-NeoX's tools/datasets/preprocess_data.py does, in constant memory."""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.data.bad_input import BadInput
from neoxlite.data.dataset_info import DatasetInfo, TokenizerInfo, read_info, write_info
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.prefetch import Prefetched
from neoxlite.data.shard import WHOLE, Shard
from neoxlite.data.system_errors import reading, writing
from neoxlite.data.text_files import Batch, input_files, read_batches, total_bytes
from neoxlite.data.writer import DatasetWriter, token_dtype
from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer
from neoxlite.tokenizers.base import needed_library, reason_of
from neoxlite.tokenizers.encoder import Choice, Encoded, Encoder, PlainEncoder, choose_encoder

_LOG = logging.getLogger(__name__)
_BATCH_CHARACTERS: Final = 1 << 20
_BATCHES_AHEAD: Final = 4
_LONG_TEXT: Final = 500  # ids
_SAMPLE_CHARACTERS: Final = 1 << 15


@dataclass(frozen=True)
class Options:
    """How texts become a dataset.

    Attributes:
        keys: fields of the JSON objects; each gives a dataset of its own.
        append_eod: end each document with the tokenizer's end-of-document token.
        max_docs: documents to read at most.
        ftfy: mend broken characters of the texts first.
        skip_bad: leave out what is damaged, rather than stop.
        shard: the part of the input to take.
        tokenizer_type: GPT-NeoX's name of the tokenizer, to be written beside the dataset.
    """

    keys: Sequence[str] = ("text",)
    append_eod: bool = False
    max_docs: int | None = None
    ftfy: bool = False
    skip_bad: bool = False
    shard: Shard = WHOLE
    tokenizer_type: str = ""


_DEFAULTS: Final = Options()


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        documents: documents read.
        skipped: texts without a token, which give no document, as upstream.
        tokens: tokens written, all keys together.
        bytes_read, bytes_total: input consumed, of all input, as stored.
        seconds: since the start.
        share: part of the work done, 0 to 1.
        bad: what was damaged and left out.
        encoder: the library that tokenized.
        done_before: an earlier run has made this shard already.
    """

    documents: int = 0
    skipped: int = 0
    tokens: int = 0
    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0
    share: float = 0.0
    bad: BadInput = field(default_factory=BadInput)
    encoder: str = ""
    done_before: bool = False

    @property
    def remaining_s(self) -> float | None:
        """Seconds left at the speed so far; None before there is one."""
        return self.seconds * (1 - self.share) / self.share if self.share else None

    def line(self) -> str:
        """Return one line of progress."""
        seconds = max(self.seconds, 1e-9)
        rate = f"{self.documents / seconds:,.0f} docs/s, {self.bytes_read / seconds / 1e6:.2f} MB/s"
        left = "" if self.remaining_s is None else f", {self.share:.0%} done, {self.remaining_s:.0f} s left"
        return f"Processed {self.documents:,} documents ({rate}){left}."


def output_prefix(prefix: str, key: str) -> str:
    """Return the dataset prefix of one key, named as upstream names it."""
    return f"{prefix}_{key}_document"


def output_prefixes(prefix: str, options: Options) -> list[str]:
    """Return the dataset prefixes of all keys; those of a shard carry its number."""
    own = prefix if options.shard == WHOLE else options.shard.prefix(prefix)
    return [output_prefix(own, key) for key in options.keys]


def tokenize_files(
    inputs: Sequence[Path],
    prefix: str,
    tokenizer: Tokenizer,
    options: Options = _DEFAULTS,
    *,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Write ``{prefix}_{key}_document.{bin,idx}`` for each key, documents in the order of the files.

    A text without a token gives no document. (Upstream encodes the same text for every key and fails on a blank text
    with ``append_eod``; here each key has its own text.) A shard that an earlier run finished from the same input is
    not made again.

    Args:
        inputs: text files and folders of them, see `read_batches`.
        tokenizer: encodes; its vocabulary decides the dtype.
        report: called after every batch.

    Raises:
        DataError: an input is missing or damaged, holds no text, or the tokenizer has no end of document.
        NeoxliteError: the output cannot be written.
    """
    if options.append_eod and tokenizer.eod is None:
        raise DataError(
            "the tokenizer has no <|endoftext|>, so no end of document can be appended",
            hint="omit --append-eod, or add <|endoftext|> to the tokenizer",
        )
    files = input_files(inputs)
    made_by = TokenizerInfo.of(tokenizer, options.tokenizer_type)
    request = _request(files, made_by, options)
    prefixes = output_prefixes(prefix, options)
    if options.shard != WHOLE and all(_is_done(name, request) for name in prefixes):
        return Progress(share=1.0, done_before=True)
    progress = Progress(bytes_total=total_bytes(files, options.shard), bad=BadInput(options.skip_bad))
    with writing(prefix), ExitStack() as stack:
        dtype = token_dtype(tokenizer.vocab_size)
        writers = [stack.enter_context(DatasetWriter(name, dtype)) for name in prefixes]
        _Run(tokenizer, options, progress, report).work(files, writers)
        if progress.tokens == 0 and options.shard == WHOLE:
            raise DataError("the input holds no text", hint="check the input files and --jsonl-keys")
    with writing(prefix):
        for name, writer in zip(prefixes, writers, strict=True):
            info = DatasetInfo.of(writer, made_by, append_eod=options.append_eod, request=request)
            write_info(name, info)
    return progress


class _Run:
    """Reads in one thread and encodes and writes in another."""

    def __init__(
        self, tokenizer: Tokenizer, options: Options, progress: Progress, report: Callable[[Progress], None]
    ) -> None:
        self._tokenizer, self._options, self._progress, self._report = tokenizer, options, progress, report
        self._eod = tokenizer.eod if options.append_eod else None
        self._encoder: Encoder | None = None
        self._fix = _ftfy() if options.ftfy else None

    def work(self, files: Sequence[Path], writers: Sequence[DatasetWriter]) -> None:
        options, progress = self._options, self._progress
        began = time.monotonic()
        batches = read_batches(files, options.keys, bad=progress.bad, shard=options.shard)
        with Prefetched(_grouped(batches, options.max_docs), _BATCHES_AHEAD) as ahead:
            for batch in ahead:
                for column, writer in zip(batch.columns, writers, strict=True):
                    self._write(column, writer)
                progress.documents += len(batch)
                progress.bytes_read = min(batch.bytes_read, progress.bytes_total)
                progress.seconds = time.monotonic() - began
                share = progress.documents / options.max_docs if options.max_docs else 0.0
                progress.share = max(progress.bytes_read / max(progress.bytes_total, 1), share)
                self._report(progress)

    def _write(self, texts: Sequence[str], writer: DatasetWriter) -> None:
        if self._fix is not None:
            texts = [self._fix(text) for text in texts]
        encoded = self._encode(texts)
        ids, sizes = with_end(encoded, self._eod, writer.dtype)
        writer.add_documents(ids, sizes)
        self._progress.tokens += ids.size
        self._progress.skipped += len(texts) - sizes.size

    def _encode(self, texts: Sequence[str]) -> Encoded:
        """Encode, by what the first texts of the input give the ids of the tokenizer fastest, as long as it works."""
        if self._encoder is None:
            self._encoder = self._take(choose_encoder(self._tokenizer, _sample(texts)))
        try:
            return self._encoder.encode(texts)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of a library is no Exception
            if isinstance(self._encoder, PlainEncoder):
                raise
            reason = f"{self._encoder.name} failed ({reason_of(error)}), and is not used any more"
            self._encoder = self._take(Choice(PlainEncoder(self._tokenizer), reason))
            return self._encoder.encode(texts)

    def _take(self, choice: Choice) -> Encoder:
        if choice.reason is not None:
            _tell_once(choice.reason)
        self._progress.encoder = choice.encoder.name
        return choice.encoder


@functools.cache
def _tell_once(reason: str) -> None:
    """Say why the fast library is not used: once, however many files this process makes datasets of."""
    _LOG.warning("%s", reason)


def with_end(
    encoded: Encoded, eod: int | None, dtype: np.dtype[Any]
) -> tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.int64]]:
    """Return the ids with ``eod`` (None: nothing) behind each text that has some, and the sizes of those texts.

    The ids have ``dtype`` where all fit; otherwise they keep a wider one, and the writer says which do not fit.
    """
    ids, sizes = encoded.ids, encoded.sizes[encoded.sizes > 0]
    largest = max(int(ids.max()) if ids.size else 0, eod or 0)
    kind = dtype if largest <= np.iinfo(dtype).max and ids.dtype.kind == "u" else np.result_type(ids.dtype, dtype)
    if eod is None:
        return ids.astype(kind, copy=False), sizes
    ends = np.cumsum(sizes)
    out = np.full(ids.size + sizes.size, eod, kind)
    if ids.size > _LONG_TEXT * sizes.size:  # copying text by text is faster for long ones, a mask for short ones
        start = 0
        for number, end in enumerate(ends.tolist()):
            out[start + number : end + number] = ids[start:end]
            start = end
    else:
        is_text = np.ones(out.size, np.bool_)
        is_text[ends + np.arange(ends.size)] = False
        out[is_text] = ids
    return out, sizes + 1


def _grouped(batches: Iterator[Batch], limit: int | None) -> Iterator[Batch]:
    """Join small batches, so that there is work for all threads, and stop behind ``limit`` documents."""
    columns: list[list[str]] = []
    documents = characters = position = 0
    for batch in batches:
        columns = columns or [[] for _ in batch.columns]
        for column, new in zip(columns, batch.columns, strict=True):
            part = new if limit is None else new[: limit - documents]
            column += part
            characters += sum(map(len, part))
        documents += len(batch)
        position = batch.bytes_read
        last = limit is not None and documents >= limit
        if last or characters >= _BATCH_CHARACTERS:
            yield Batch(tuple(columns), position)
            columns, characters = [], 0
        if last:
            return
    if columns:
        yield Batch(tuple(columns), position)


def _sample(texts: Sequence[str]) -> list[str]:
    """Return the beginnings of some texts, together of bounded length."""
    return [text[: _SAMPLE_CHARACTERS // 8] for text in texts[:8]]


def _ftfy() -> Callable[[str], str]:
    fix: Callable[[str], str] = needed_library("ftfy", "--ftfy", "data").fix_text
    return fix


def _request(files: Sequence[Path], made_by: TokenizerInfo, options: Options) -> str:
    """Return a hash of all that the datasets depend on; of the files, their names, sizes and times."""
    with reading("input"):
        stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    told = repr((stats, made_by.fingerprint, options))
    return hashlib.blake2b(told.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _is_done(prefix: str, request: str) -> bool:
    info = read_info(prefix)
    return info is not None and info.request == request and IndexedDataset(prefix).num_tokens == info.tokens

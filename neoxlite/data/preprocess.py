"""Text files to token datasets: what GPT-NeoX's tools/datasets/preprocess_data.py does, in constant memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from neoxlite.data.system_errors import writing
from neoxlite.data.text_files import Record, read_records, total_bytes
from neoxlite.data.writer import DatasetWriter, token_dtype
from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer

_BATCH_DOCUMENTS = 512
_BATCH_CHARACTERS = 1 << 20


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
    """

    documents: int = 0
    skipped: int = 0
    tokens: int = 0
    bytes_read: int = 0
    bytes_total: int = 0
    seconds: float = 0.0
    share: float = 0.0

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


def tokenize_files(
    inputs: Sequence[Path],
    prefix: str,
    tokenizer: Tokenizer,
    *,
    keys: Sequence[str] = ("text",),
    append_eod: bool = False,
    num_docs: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Write ``{prefix}_{key}_document.{bin,idx}`` for each key, documents in the order of the files.

    A text without a token gives no document. (Upstream encodes the same text for every key and fails on a blank text
    with ``append_eod``; here each key has its own text.)

    Args:
        inputs: text files, see `read_records`.
        tokenizer: encodes; its vocabulary decides the dtype.
        append_eod: end each document with the tokenizer's end-of-document token.
        num_docs: documents to read at most.
        report: called after every batch.

    Raises:
        DataError: an input is missing or damaged, holds no text, or the tokenizer has no end of document.
        NeoxliteError: the output cannot be written.
    """
    if append_eod and tokenizer.eod is None:
        raise DataError(
            "the tokenizer has no <|endoftext|>, so no end of document can be appended",
            hint="Leave out --append-eod, or add <|endoftext|> to the tokenizer.",
        )
    end = [tokenizer.eod] if append_eod and tokenizer.eod is not None else []
    progress = Progress(bytes_total=total_bytes(inputs))
    started = time.monotonic()
    with writing(prefix), ExitStack() as stack:
        writers = [
            stack.enter_context(DatasetWriter(output_prefix(prefix, key), token_dtype(tokenizer.vocab_size)))
            for key in keys
        ]
        for batch in _batches(read_records(inputs, keys), num_docs):
            for column, writer in enumerate(writers):
                texts = [record.texts[column] for record in batch]
                for ids in tokenizer.encode_batch(texts):
                    if ids:
                        writer.add_document(ids + end)
                        progress.tokens += len(ids) + len(end)
                    else:
                        progress.skipped += 1
            progress.documents += len(batch)
            progress.bytes_read = batch[-1].bytes_read
            progress.seconds = time.monotonic() - started
            progress.share = max(
                progress.bytes_read / max(progress.bytes_total, 1), progress.documents / num_docs if num_docs else 0.0
            )
            report(progress)
        if progress.tokens == 0:
            raise DataError("the input holds no text", hint="Check the input files and --jsonl-keys.")
    return progress


def _batches(records: Iterator[Record], limit: int | None) -> Iterator[list[Record]]:
    """Group documents so that a batch is big enough for all threads and small enough for memory."""
    batch: list[Record] = []
    characters = 0
    for number, record in enumerate(records, start=1):
        batch.append(record)
        characters += sum(map(len, record.texts))
        if len(batch) >= _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
        if number == limit:
            break
    if batch:
        yield batch

"""``neoxlite data verify``."""

from __future__ import annotations

import click

from neoxlite.common.counting import counted
from neoxlite.data.commands.options import say
from neoxlite.data.dataset_info import read_info
from neoxlite.data.indexed import IndexedDataset, bin_path, idx_path
from neoxlite.errors import DataError

_FIX = "copy it again, write it again, or recover what is complete with `neoxlite data repair`"


@click.command("verify")
@click.argument("prefixes", nargs=-1, required=True, metavar="PREFIX...")
@click.option("--vocab-size", type=click.IntRange(1), help="Refuse token ids from this on.")
def command(prefixes: tuple[str, ...], vocab_size: int | None) -> None:
    """Read every byte of the datasets and check that all of it fits together.

    Ends with code 2 if one is damaged or missing, after all have been read.

    \b
    Example:
      neoxlite data verify data/*_text_document.idx
    """
    damaged = missing = 0
    for given in prefixes:
        prefix = given.removesuffix(".idx")
        try:
            click.echo(f"{prefix}: {_verified(prefix, vocab_size)}")
        except DataError as error:
            if len(prefixes) == 1:
                raise DataError(error.message, hint=error.hint or _FIX) from error
            say(error.message)
            if idx_path(prefix).exists() or bin_path(prefix).exists():
                damaged += 1
            else:
                missing += 1
    if damaged or missing:
        raise DataError(
            f"of {len(prefixes)} datasets {damaged} damaged, {missing} missing",
            hint=_FIX if damaged else "check the names; a dataset is PREFIX.bin with PREFIX.idx",
        )


def _verified(prefix: str, vocab_size: int | None) -> str:
    dataset = IndexedDataset(prefix)
    summary = dataset.verify()
    if vocab_size is not None and summary.largest_id >= vocab_size:
        raise DataError(f"{prefix}: token {summary.largest_id} lies outside a vocabulary of {vocab_size}")
    told = read_info(prefix)
    if told is not None and (told.tokens, told.largest_id) != (summary.tokens, summary.largest_id):
        raise DataError(
            f"{prefix}: {summary.tokens} tokens up to {summary.largest_id}, "
            f"but {told.tokens} up to {told.largest_id} were written"
        )
    counts = f"{counted(summary.documents, 'document')}, {counted(summary.tokens, 'token')}"
    return f"whole, {counts}, largest id {summary.largest_id:,}"

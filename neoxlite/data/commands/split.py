"""``neoxlite data split``."""

from __future__ import annotations

import click

from neoxlite.common.counting import counted
from neoxlite.data.commands.options import comma_list
from neoxlite.data.merge import split_dataset
from neoxlite.errors import DataError


@click.command("split")
@click.argument("prefix")
@click.option("--shares", required=True, metavar="A,B", callback=comma_list, help="Shares of the documents.")
@click.option("--names", metavar="A,B", help="Ends of the new prefixes. Default: 1,2,...")
def command(prefix: str, shares: list[str], names: str | None) -> None:
    """Divide a dataset into datasets PREFIX_NAME of consecutive documents.

    \b
    Example:
      neoxlite data split corpus_text_document --shares 99,1 --names train,valid
    """
    try:
        numbers = [float(share) for share in shares]
    except ValueError:
        raise DataError(f"--shares {','.join(shares)}: not numbers", hint="give, for example, 99,1") from None
    ends = names.split(",") if names is not None else [str(number) for number in range(1, len(numbers) + 1)]
    if len(set(ends)) != len(numbers) or not all(ends):
        raise DataError(
            f"{len(numbers)} shares, but --names {names}", hint="give one name, different from the others, for each"
        )
    for written in split_dataset(prefix, numbers, [f"{prefix}_{end}" for end in ends]):
        click.echo(f"{written.prefix}: {counted(written.documents, 'document')}, {counted(written.tokens, 'token')}")

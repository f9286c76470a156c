"""``neoxlite data repair``."""

from __future__ import annotations

import click

from neoxlite.common.counting import counted
from neoxlite.data.commands.options import say
from neoxlite.data.repair import repair_dataset


@click.command("repair")
@click.argument("prefix")
@click.option("--output", "--output-prefix", "output", required=True, help="Prefix of the new dataset.")
@click.option("--eod", type=click.IntRange(0), help="Token that ends documents, if the index does not record it.")
@click.option(
    "--dtype", type=click.Choice(["uint16", "int32"]), help="Type of the tokens, if the index does not record it."
)
def command(prefix: str, output: str, eod: int | None, dtype: str | None) -> None:
    """Write what is complete of a damaged dataset as a new one.

    For files that were truncated, an index that is gone or does not fit, and datasets that GPT-NeoX merged, which have
    lost their document boundaries. The damaged files stay as they are.

    \b
    Example:
      neoxlite data repair merged_text_document --output fixed_text_document
    """
    done = repair_dataset(prefix, output, eod=eod, dtype=dtype)
    for note in done.notes:
        say(f"{prefix}: {note}")
    if done.lost_bytes:
        say(f"{prefix}.bin: {done.lost_bytes:,} bytes belong to no complete sequence and are dropped")
    click.echo(f"{output}: {counted(done.documents, 'document')}, {counted(done.tokens, 'token')}")

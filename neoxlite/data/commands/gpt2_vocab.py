"""``neoxlite data gpt2-vocab``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.data.gpt2_files import write_gpt2_files


@click.command("gpt2-vocab")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
def command(output: Path) -> None:
    """Write GPT-2's vocabulary as GPT-NeoX names it: gpt2-vocab.json and gpt2-merges.txt.

    GPT2BPETokenizer has the vocabulary built in; this is for other programs and for GPT-NeoX's own configurations.

    \b
    Example:
      neoxlite data gpt2-vocab --output data
    """
    for path in write_gpt2_files(output):
        click.echo(path)

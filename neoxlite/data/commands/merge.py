"""``neoxlite data merge``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.common.counting import counted
from neoxlite.data.merge import merge_datasets
from neoxlite.data.system_errors import reading
from neoxlite.errors import DataError


@click.command("merge")
@click.argument("prefixes", nargs=-1, metavar="[PREFIX]...")
@click.option("--input", "folder", type=click.Path(path_type=Path), help="Merge all datasets of a folder, by name.")
@click.option("--output", "--output-prefix", "output", required=True, help="Prefix of the merged dataset.")
def command(prefixes: tuple[str, ...], folder: Path | None, output: str) -> None:
    """Join datasets, in the order given, to one dataset with all their documents.

    \b
    Example:
      neoxlite data merge part_1of2_text_document part_2of2_text_document \\
          --output whole_text_document
    """
    if (folder is None) == (not prefixes):
        raise DataError("give either prefixes or --input FOLDER", hint="see `neoxlite data merge --help`")
    names = list(prefixes)
    if folder is not None:
        with reading(folder):
            names = sorted(str(path.with_suffix("")) for path in folder.iterdir() if path.suffix == ".idx")
    done = merge_datasets([name.removesuffix(".idx") for name in names], output)
    told = f"{counted(done.documents, 'document')}, {counted(done.tokens, 'token')}"
    click.echo(f"{done.prefix}: {told} from {counted(len(names), 'dataset')}")

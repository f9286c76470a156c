"""``neoxlite data collect-python``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.data.python_source import collect_python


@click.command("collect-python")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
@click.option("--valid-fraction", default=0.1, show_default=True, help="Share of the files that is held out.")
@click.option("--max-mib", type=float, help="Stop at this much text, MiB. Default: all.")
def command(output: Path, valid_fraction: float, max_mib: float | None) -> None:
    """Collect the source files of this Python's standard library as text.

    Writes OUTPUT/train.jsonl and OUTPUT/valid.jsonl. Each file is in one of them, by a hash of its name, so held-out
    files are never trained on. Needs no network; the same Python gives the same files.

    \b
    Example:
      neoxlite data collect-python --output text --max-mib 6
    """
    corpus = collect_python(output, valid_fraction=valid_fraction, max_mib=max_mib)
    for part, files, size in (
        ("train", corpus.train_files, corpus.train_bytes),
        ("valid", corpus.valid_files, corpus.valid_bytes),
    ):
        click.echo(f"{output / part}.jsonl: {files} files, {size / 2**20:.2f} MiB")

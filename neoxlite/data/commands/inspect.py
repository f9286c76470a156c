"""``neoxlite data inspect``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from neoxlite.data.commands.options import print_json, say
from neoxlite.data.dataset_info import TokenizerInfo, read_info
from neoxlite.data.indexed import IndexedDataset
from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer, build_tokenizer


@click.command("inspect")
@click.argument("prefix")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="tokenizer.json (or vocab.json) that decodes.")
@click.option(
    "--merge-file", type=click.Path(path_type=Path), help="merges.txt, with --tokenizer-type GPT2BPETokenizer."
)
@click.option("--tokenizer-type", help="Default with --tokenizer: HFTokenizer.")
@click.option("--tokens", "shown", default=32, show_default=True, type=click.IntRange(0), help="First tokens to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    prefix: str,
    tokenizer: Path | None,
    merge_file: Path | None,
    tokenizer_type: str | None,
    shown: int,
    as_json: bool,
) -> None:
    """Show what the dataset PREFIX.bin/PREFIX.idx is, and verify all of it.

    The first text is shown with a tokenizer: that given, else a built-in one that made the dataset.

    \b
    Example:
      neoxlite data inspect train_text_document --tokenizer tokenizer.json
    """
    dataset = IndexedDataset(prefix)
    summary = dataset.verify()
    first = dataset.tokens(0, shown).tolist()
    report: dict[str, Any] = {"prefix": prefix, "format": dataset.kind, "dtype": dataset.dtype.name} | asdict(summary)
    report["document_boundaries"] = dataset.has_document_boundaries
    report["first_tokens"] = first
    decoder = _maker(prefix)
    if tokenizer is not None or tokenizer_type is not None:
        decoder = build_tokenizer(tokenizer_type or "HFTokenizer", tokenizer, merge_file)
    if decoder is not None:
        if summary.largest_id >= decoder.vocab_size:
            raise DataError(
                f"{prefix}: token {summary.largest_id} lies outside the tokenizer's vocabulary of {decoder.vocab_size}",
                hint="give the tokenizer that the dataset was made with",
            )
        report["vocab_size"] = decoder.vocab_size
        report["first_text"] = decoder.decode(first)
    if as_json:
        print_json(report)
        return
    if not dataset.has_document_boundaries:
        say("The document boundaries do not cover all sequences (GPT-NeoX's merge loses them); training ignores them.")
    for name, value in report.items():
        click.echo(f"{name.replace('_', ' '):<20} {_text(name, value)}")


def _maker(prefix: str) -> Tokenizer | None:
    """Return the tokenizer that made a dataset, where its description names one that needs no files; else None."""
    info = read_info(prefix)
    if info is None or info.tokenizer is None:
        return None
    try:
        made_by = build_tokenizer(info.tokenizer.type)
    except DataError:
        return None
    return made_by if TokenizerInfo.of(made_by).fingerprint == info.tokenizer.fingerprint else None


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else repr(value) if name == "first_text" else str(value)

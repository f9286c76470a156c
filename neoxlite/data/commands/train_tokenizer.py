"""``neoxlite data train-tokenizer``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.data.commands.options import INPUT_HELP, comma_list, on_terminal, paths, say
from neoxlite.data.train_bpe import train_bpe


@click.command("train-tokenizer")
@click.option("--input", "inputs", required=True, metavar="A,B", callback=comma_list, help=INPUT_HELP)
@click.option(
    "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="tokenizer.json to write."
)
@click.option("--vocab-size", default=32_000, show_default=True, help="Tokens in the vocabulary.")
@click.option(
    "--jsonl-keys", default="text", show_default=True, metavar="A,B", callback=comma_list, help="Fields that hold text."
)
def command(inputs: list[str], output: Path, vocab_size: int, jsonl_keys: list[str]) -> None:
    """Train a byte-level BPE tokenizer and write its tokenizer.json.

    Use it with `tokenizer_type: HFTokenizer` and `vocab_file: OUTPUT`.

    \b
    Example:
      neoxlite data train-tokenizer --input text/train.jsonl \\
          --vocab-size 4096 --output tokenizer.json
    """
    size = train_bpe(paths(inputs), output, vocab_size, keys=jsonl_keys, show_progress=on_terminal())
    if size < vocab_size:
        say(f"The text gave only {size:,} tokens; {vocab_size:,} were requested.")
    click.echo(f"{output}: {size:,} tokens")

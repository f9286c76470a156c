"""``neoxlite convert from-hf``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("from-hf")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Folder of the tokenizer. [default: FOLDER]")
@click.option("--prompt", metavar="TEXT", help="Compare the logits on this text.")
def command(folder: Path, output: Path, tokenizer: Path | None, prompt: str | None) -> None:
    """Write a Hugging Face FOLDER (GPTNeoX, Llama, Mistral) as checkpoint OUTPUT, with a configuration that trains it.

    \b
    Example:
      neoxlite convert from-hf pythia-160m start
      neoxlite train start/config.yml --set data_path=data/corpus_text_document
    """
    from neoxlite.convert.compare import PROMPT
    from neoxlite.convert.from_hf import import_folder

    done = import_folder(folder, output, tokenizer_folder=tokenizer, prompt=prompt or PROMPT)
    click.echo(done.comparison.line)
    click.echo(f"{done.folder}: {done.class_name}, {done.parameters:,} parameters")
    click.echo(f"train it: neoxlite train {done.config} --set data_path=PREFIX")

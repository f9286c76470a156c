"""``neoxlite data tokenize``: the options of GPT-NeoX's tools/datasets/preprocess_data.py."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from neoxlite.data.commands.options import comma_list, on_terminal, paths, say
from neoxlite.data.preprocess import Progress, output_prefix, tokenize_files
from neoxlite.tokenizers import SUPPORTED, build_tokenizer


@click.command("tokenize")
@click.option(
    "--input", "inputs", required=True, metavar="A,B", callback=comma_list, help="Text files: .jsonl, .jsonl.gz, .txt."
)
@click.option("--output-prefix", required=True, help="Path without suffix; a folder in it must exist.")
@click.option("--tokenizer-type", required=True, help=f"One of {', '.join(SUPPORTED)}.")
@click.option("--vocab-file", "--vocab", type=click.Path(path_type=Path), help="tokenizer.json or vocab.json.")
@click.option("--merge-file", type=click.Path(path_type=Path), help="merges.txt of GPT2BPETokenizer.")
@click.option(
    "--jsonl-keys", default="text", show_default=True, metavar="A,B", callback=comma_list, help="Fields to tokenize."
)
@click.option("--append-eod", is_flag=True, help="End each document with <|endoftext|>.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Threads that tokenize.")
@click.option("--dataset-impl", default="mmap", show_default=True, type=click.Choice(["mmap"]), help="File format.")
@click.option("--num-docs", type=click.IntRange(1), help="Read this many documents at most.")
@click.option("--log-interval", default=10_000, show_default=True, type=click.IntRange(1), help="Documents per line.")
def command(
    inputs: list[str],
    output_prefix: str,
    tokenizer_type: str,
    vocab_file: Path | None,
    merge_file: Path | None,
    jsonl_keys: list[str],
    append_eod: bool,
    workers: int,
    dataset_impl: str,
    num_docs: int | None,
    log_interval: int,
) -> None:
    """Tokenize text into OUTPUT_PREFIX_KEY_document.bin and .idx.

    The files are readable by GPT-NeoX and Megatron. The order of the documents is kept, a text without tokens is left
    out, and an interrupted run leaves nothing under the final names.

    \b
    Example:
      neoxlite data tokenize --input text/train.jsonl --output-prefix train --append-eod \\
          --tokenizer-type HFTokenizer --vocab-file tokenizer.json --workers 4
    """
    # Read by the tokenizers library when it starts its threads.
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if workers > 1 else "false"
    tokenizer = build_tokenizer(tokenizer_type, vocab_file, merge_file)
    with _reporter(log_interval) as report:
        done = tokenize_files(
            paths(inputs),
            output_prefix,
            tokenizer,
            keys=jsonl_keys,
            append_eod=append_eod,
            num_docs=num_docs,
            report=report,
        )
    _summarise(done, output_prefix, jsonl_keys)


def _summarise(done: Progress, prefix: str, keys: list[str]) -> None:
    if done.skipped:
        say(f"{done.skipped:,} texts without a token were left out.")
    seconds = max(done.seconds, 1e-9)
    for key in keys:
        click.echo(f"{output_prefix(prefix, key)}.bin and .idx")
    click.echo(
        f"{done.documents:,} documents, {done.tokens:,} tokens, {done.seconds:.1f} s "
        f"({done.bytes_read / seconds / 1e6:.1f} MB/s)"
    )


@contextlib.contextmanager
def _reporter(log_interval: int) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: a bar on a terminal, else a line every ``log_interval`` documents."""
    if not on_terminal():
        shown = 0

        def print_line(progress: Progress) -> None:
            nonlocal shown
            if progress.documents // log_interval > shown:
                shown = progress.documents // log_interval
                say(progress.line())

        yield print_line
        return

    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("Tokenizing", total=1.0)

        def redraw(progress: Progress) -> None:
            rate = progress.bytes_read / max(progress.seconds, 1e-9) / 1e6
            text = f"{progress.documents:,} documents, {rate:.1f} MB/s"
            bars.update(task, completed=progress.share, description=text)

        yield redraw

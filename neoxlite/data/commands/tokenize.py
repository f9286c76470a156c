"""``neoxlite tokenize`` and ``neoxlite data tokenize``: the options of GPT-NeoX's tools/datasets/preprocess_data.py."""

from __future__ import annotations

import os
from pathlib import Path

import click

from neoxlite.common.counting import counted
from neoxlite.data.commands.options import INPUT_HELP, ON_ERROR_HELP, comma_list, paths, say
from neoxlite.data.commands.reporting import reporter
from neoxlite.data.preprocess import Options, Progress, output_prefixes, tokenize_files
from neoxlite.data.shard import WHOLE, Shard
from neoxlite.tokenizers import SUPPORTED, build_tokenizer

_KEYS = "--jsonl-keys"


class _KeysAsWords(click.Command):
    """Takes ``--jsonl-keys a b``, several words as GPT-NeoX's tool does, for ``--jsonl-keys a,b``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the words behind the option, then parse."""
        if _KEYS in args:
            first = args.index(_KEYS) + 1
            last = next((at for at, word in enumerate(args) if at >= first and word.startswith("-")), len(args))
            args = [*args[:first], *([",".join(args[first:last])] if last > first else []), *args[last:]]
        return super().parse_args(ctx, args)


@click.command("tokenize", cls=_KeysAsWords)
@click.option("--input", "inputs", required=True, metavar="A,B", callback=comma_list, help=INPUT_HELP)
@click.option("--output-prefix", required=True, help="Path without suffix; a folder in it must exist.")
@click.option("--tokenizer-type", required=True, help=f"One of {', '.join(SUPPORTED)}.")
@click.option("--vocab-file", "--vocab", type=click.Path(path_type=Path), help="The tokenizer's file.")
@click.option("--merge-file", type=click.Path(path_type=Path), help="merges.txt of GPT2BPETokenizer.")
@click.option(_KEYS, default="text", show_default=True, metavar="A,B", callback=comma_list, help="Fields to tokenize.")
@click.option("--append-eod", is_flag=True, help="End each document with <|endoftext|>.")
@click.option("--ftfy", is_flag=True, help="Fix broken characters first, with the library ftfy.")
@click.option("--shard", metavar="I/N", help="Take the I-th of N parts of the input; a finished part is kept.")
@click.option("--on-error", default="stop", show_default=True, type=click.Choice(["stop", "skip"]), help=ON_ERROR_HELP)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Threads that tokenize.")
@click.option("--dataset-impl", default="mmap", show_default=True, type=click.Choice(["mmap"]), help="File format.")
@click.option("--max-docs", type=click.IntRange(1), help="Read this many documents at most.")
@click.option("--num-docs", type=int, expose_value=False, help="GPT-NeoX's, for its progress; here without effect.")
@click.option("--log-interval", default=10_000, show_default=True, type=click.IntRange(1), help="Documents per line.")
def command(
    inputs: list[str],
    output_prefix: str,
    tokenizer_type: str,
    vocab_file: Path | None,
    merge_file: Path | None,
    jsonl_keys: list[str],
    append_eod: bool,
    ftfy: bool,
    shard: str | None,
    on_error: str,
    workers: int,
    dataset_impl: str,
    max_docs: int | None,
    log_interval: int,
) -> None:
    """Tokenize text into OUTPUT_PREFIX_KEY_document.bin and .idx.

    The files are readable by GPT-NeoX and Megatron. The order of the documents is kept, a text without tokens is left
    out, and an interrupted run leaves nothing under the final names.

    One input may be divided over several runs or machines with --shard 1/4, --shard 2/4, ... and joined again with
    `neoxlite data merge`: the result is that of one run.

    \b
    Example:
      neoxlite tokenize --input text/train.jsonl --output-prefix train \\
          --append-eod --tokenizer-type HFTokenizer --vocab-file tokenizer.json
    """
    # Read by the tokenizers library when it starts its threads.
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if workers > 1 else "false"
    tokenizer = build_tokenizer(tokenizer_type, vocab_file, merge_file)
    options = Options(
        keys=tuple(jsonl_keys),
        append_eod=append_eod,
        max_docs=max_docs,
        ftfy=ftfy,
        skip_bad=on_error == "skip",
        shard=Shard.parse(shard) if shard else WHOLE,
        tokenizer_type=tokenizer_type,
    )
    with reporter(log_interval) as report:
        done = tokenize_files(paths(inputs), output_prefix, tokenizer, options, report=report)
    _summarise(done, output_prefixes(output_prefix, options))


def _summarise(done: Progress, prefixes: list[str]) -> None:
    if done.skipped:
        say(f"skipped: {counted(done.skipped, 'text')} without a token")
    left_out = done.bad.summary()
    if left_out is not None:
        say(f"{left_out}.")
    for prefix in prefixes:
        click.echo(f"{prefix}.bin and .idx")
    if done.done_before:
        click.echo("already there from an earlier run with the same input and options")
        return
    click.echo(
        f"{counted(done.documents, 'document')}, {counted(done.tokens, 'token')}, {done.seconds:.1f} s "
        f"({done.bytes_read / max(done.seconds, 1e-9) / 1e6:.1f} MB/s, {done.encoder})"
    )

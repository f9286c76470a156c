"""``neoxlite prepare-data``, also ``neoxlite data prepare``: the options of GPT-NeoX's prepare_data.py."""

from __future__ import annotations

import os
from pathlib import Path

import click

from neoxlite.common.counting import counted
from neoxlite.data.commands.reporting import reporter
from neoxlite.data.corpora import CORPORA, STDLIB, prepare_corpus
from neoxlite.tokenizers import SUPPORTED


@click.command("prepare")
@click.argument("name", default="enwik8")
@click.option("-t", "--tokenizer", "tokenizer_type", default="GPT2BPETokenizer", show_default=True, help="Its type.")
@click.option("-d", "--data-dir", type=click.Path(path_type=Path), help="Default: $DATA_DIR, else data.")
@click.option(
    "-v", "--vocab-file", help=f"Vocabulary file of the tokenizer ({', '.join(SUPPORTED)}); GPT-2's is built in."
)
@click.option("-m", "--merge-file", help="Merges file of GPT2BPETokenizer.")
@click.option("--download", is_flag=True, help="Download missing files.")
@click.option("-f", "--force-redownload", is_flag=True, help="Download even if present.")
@click.option(
    "--workers", default=os.cpu_count() or 1, type=click.IntRange(1), help="Threads. Default: all processors."
)
def command(
    name: str,
    tokenizer_type: str,
    data_dir: Path | None,
    vocab_file: str | None,
    merge_file: str | None,
    download: bool,
    force_redownload: bool,
    workers: int,
) -> None:
    """Make the token dataset of a corpus: enwik8, openwebtext2, or stdlib, which needs no network.

    Writes DATA_DIR/NAME/NAME_text_document and, for GPT2BPETokenizer, GPT-2's vocabulary, where GPT-NeoX has them.
    Nothing is downloaded without --download or -f.

    \b
    Examples:
      neoxlite prepare-data enwik8 --download
      neoxlite prepare-data stdlib -t CharLevelTokenizer -d data
    """
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if workers > 1 else "false"
    folder = data_dir if data_dir is not None else Path(os.environ.get("DATA_DIR") or "data")
    with reporter(10_000) as report:
        done = prepare_corpus(
            name,
            folder,
            tokenizer_type,
            vocab_file=vocab_file,
            merge_file=merge_file,
            download=download or force_redownload,
            again=force_redownload,
            report=report,
        )
    about = "Python's standard library" if name == STDLIB else CORPORA[name].about
    click.echo(f"{name}: {about}")
    for prefix, run in zip(done.prefixes, done.runs, strict=True):
        click.echo(f"{prefix}: {counted(run.documents, 'document')}, {counted(run.tokens, 'token')}")

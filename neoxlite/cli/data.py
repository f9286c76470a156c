"""``neoxlite data``: from text to token datasets, and what is in them."""

from __future__ import annotations

import click

from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "collect-python": (
        "neoxlite.data.commands.collect_python:command",
        "Collect the source files of this Python's standard library.",
    ),
    "train-tokenizer": ("neoxlite.data.commands.train_tokenizer:command", "Train a byte-level BPE tokenizer."),
    "tokenize": ("neoxlite.data.commands.tokenize:command", "Write .bin/.idx token files from text."),
    "prepare": (
        "neoxlite.data.commands.prepare:command",
        "Make the dataset of a known corpus (enwik8, openwebtext2, stdlib).",
    ),
    "gpt2-vocab": ("neoxlite.data.commands.gpt2_vocab:command", "Write GPT-2's vocabulary and merges."),
    "inspect": ("neoxlite.data.commands.inspect:command", "Show and verify a token dataset."),
    "verify": ("neoxlite.data.commands.verify:command", "Verify token datasets."),
    "merge": ("neoxlite.data.commands.merge:command", "Join token datasets."),
    "split": ("neoxlite.data.commands.split:command", "Divide a token dataset."),
    "repair": ("neoxlite.data.commands.repair:command", "Recover a damaged token dataset."),
    "baselines": ("neoxlite.data.commands.baselines:command", "Losses of unigram and bigram models."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Prepare data: collect text, train a tokenizer, write token files.

    \b
    Examples:
      neoxlite data collect-python --output text
      neoxlite data train-tokenizer --input text/train.jsonl \\
          --vocab-size 4096 --output tokenizer.json
      neoxlite data tokenize --input text/train.jsonl --output-prefix train \\
          --append-eod --tokenizer-type HFTokenizer --vocab-file tokenizer.json
      neoxlite data inspect train_text_document --tokenizer tokenizer.json
    """

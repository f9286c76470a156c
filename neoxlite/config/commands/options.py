"""Options of the commands that resolve a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from neoxlite.config import NeoxConfig
from neoxlite.errors import DataError

_GPT2, _GPT2_SIZE = "GPT2BPETokenizer", 50257
_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "-d", "--conf-dir", type=click.Path(path_type=Path), help="Folder that every file name is relative to."
    ),
    click.option(
        "--world-size",
        type=click.IntRange(min=1),
        help="Number of GPUs.  [default: global_num_gpus, else those of one copy of the model]",
    ),
    click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override a key; a.b=c inside a block."
    ),
    click.option(
        "--vocab-size",
        type=click.IntRange(min=1),
        help="Size of the vocabulary, for the parameter count.  [default: that of the configured tokenizer, GPT-2's "
        "where its files are not here]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def resolving(command: _Command) -> _Command:
    """Add -d, --world-size, --set, --vocab-size and --json to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class Vocabulary(NamedTuple):
    """Tokens that a parameter count goes by, and whose they are, for a person."""

    size: int
    whose: str


def vocabulary(cfg: NeoxConfig, given: int | None) -> Vocabulary:
    """Return the vocabulary of --vocab-size, else of the configured tokenizer, or GPT-2's where that cannot be made."""
    if given is not None:
        return Vocabulary(given, "of --vocab-size")
    kind, files = cfg.tokenizer_type, (cfg.vocab_file, cfg.merge_file)
    if kind == _GPT2 and not any(files):
        return Vocabulary(_GPT2_SIZE, "GPT-2's")
    from neoxlite.tokenizers import build_tokenizer

    try:
        return Vocabulary(build_tokenizer(kind, *files).vocab_size, f"of {kind}")
    except DataError:  # of another machine, say; the rest of the configuration can be looked at here
        return Vocabulary(_GPT2_SIZE, f"GPT-2's, for that of {kind} is not here: --vocab-size gives it")

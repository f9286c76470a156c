"""Options of the commands that resolve a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

GPT2_VOCAB_SIZE = 50257
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
        default=GPT2_VOCAB_SIZE,
        show_default=True,
        help="Size of the tokenizer's vocabulary, for the parameter count; GPT-2's unless given.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def resolving(command: _Command) -> _Command:
    """Add -d, --world-size, --set, --vocab-size and --json to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command

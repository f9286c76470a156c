"""Callbacks and messages that the data commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

INPUT_HELP = (
    "Text files: .jsonl, .txt, .parquet, archives (.tar, .zip), also compressed (.gz, .bz2, .xz, .zst); "
    "folders of them."
)
ON_ERROR_HELP = "Damaged input: stop there, or skip and count it."


def comma_list(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    """Click callback: return the parts of a value such as "a,b"; an empty part is refused, but for one at the end,
    which scripts leave that put a comma behind each name.
    """
    parts = [part.strip() for part in value.strip().removesuffix(",").split(",")]
    if not all(parts):
        raise click.BadParameter(f"{value!r} has an empty part", ctx, param)
    return parts


def paths(names: list[str]) -> list[Path]:
    """Return the names as paths."""
    return [Path(name) for name in names]


def say(message: str) -> None:
    """Print a message for a person to stderr, so that stdout is the result alone."""
    click.echo(message, err=True)


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout."""
    click.echo(json.dumps(values, ensure_ascii=False, indent=2))


def on_terminal() -> bool:
    """Return whether stderr is a terminal, where progress may be redrawn."""
    return sys.stderr.isatty()

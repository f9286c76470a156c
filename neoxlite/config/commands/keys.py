"""``neoxlite config keys``: what a key means, and what neoxlite does with it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from neoxlite.common.files import write_whole
from neoxlite.config.keys import Key, Tier
from neoxlite.config.reference import find_keys, json_row, meant, renewed, text_row
from neoxlite.errors import ConfigError

_WIDEST = 44


@click.command()
@click.argument("pattern", required=False)
@click.option(
    "--tier",
    "tiers",
    type=click.Choice([tier.value for tier in Tier]),
    multiple=True,
    help="Only keys of this tier; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Renew the tables in this page of Markdown.",
)
def keys(pattern: str | None, tiers: tuple[str, ...], as_json: bool, markdown: Path | None) -> None:
    """List the keys of GPT-NeoX: type and default, tier, what neoxlite does with it, meaning.

    PATTERN is a part of the name, or the whole of it with * and ?. Keys inside blocks have dotted names, and keys that
    GPT-NeoX removed say what became of them.

    \b
    Examples:
      neoxlite config keys rotary
      neoxlite config keys 'zero_optimization.*'
      neoxlite config keys --tier core --json
    """
    if markdown is not None:
        write_whole(markdown, renewed(markdown.read_text(encoding="utf-8")))
        return
    found = find_keys(pattern)
    if not found:
        raise ConfigError(f"no key is like {pattern}", hint=meant(pattern or "") or "try a part of the name")
    if tiers:
        found = [key for key in found if isinstance(key, Key) and key.tier.value in tiers]
    if as_json:
        click.echo(json.dumps([json_row(key) for key in found], indent=2, ensure_ascii=False))
        return
    for line in _columns([text_row(key) for key in found]):
        click.echo(line)


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Return rows as lines of columns; what stands right of a cell that is too wide begins on a line of its own."""
    widths = [min(_WIDEST, max(map(len, column))) + 2 for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        start = 0
        lines.append("")
        for cell, width in zip(row, widths, strict=True):
            if len(lines[-1]) > max(0, start - 2):
                lines.append("")
            lines[-1] = lines[-1].ljust(start) + cell
            start += width
    return lines

"""``neoxlite config diff``: in what two configurations differ once they are resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from neoxlite.config import NeoxConfig, load_config, parse_assignments
from neoxlite.config.commands.options import resolving, vocabulary
from neoxlite.config.summary import Resolved, describe, resolved, short

_ABSENT = Resolved(None, "absent")
_COUNTED = ("padded_vocab_size", "mlp_width", "parameters", "flops_per_iteration")


class Difference(NamedTuple):
    """A key, or a number that follows from several, and both sides of it."""

    name: str
    first: Resolved
    second: Resolved


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@resolving
def diff(
    first: str,
    second: str,
    conf_dir: Path | None,
    world_size: int | None,
    assignments: tuple[str, ...],
    vocab_size: int | None,
    as_json: bool,
) -> None:
    """Compare two configurations as resolved: keys, what is derived from them, parameters and FLOPs.

    A and B are files as for show; several that belong together are joined by commas. The options hold for both.

    \b
    Examples:
      neoxlite config diff 1-3B 2-7B
      neoxlite config diff 2-7B,runs/2.7B-1node-dp8 \\
          2-7B,runs/2.7B-1node-dp4-pp2 --world-size 8
      neoxlite config diff checkpoints/global_step1000/configs/run.yml run.yml
    """
    overrides = parse_assignments(assignments)
    left, right = (
        load_config(names.split(","), conf_dir, overrides, world_size, allow_unsupported=True)
        for names in (first, second)
    )
    found = list(differences(left, right, vocab_size))
    if as_json:
        click.echo(json.dumps([_as_dict(item) for item in found], indent=2, ensure_ascii=False, default=str))
        return
    if not found:
        click.echo("no difference")
        return
    rows = [("", first, second), *((item.name, *(_cell(item.name, side) for side in item[1:])) for item in found)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, a, b in rows:
        click.echo(f"{name:<{widths[0]}}  {a:<{widths[1]}}  {b}")


def differences(first: NeoxConfig, second: NeoxConfig, vocab_size: int | None) -> Iterator[Difference]:
    """Yield what is not equal, in the order of the table, numbers that follow from several keys last."""
    left, right = resolved(first), resolved(second)
    for name in dict.fromkeys([*left, *right]):
        pair = left.get(name, _ABSENT), right.get(name, _ABSENT)
        if pair[0].value != pair[1].value:
            yield Difference(name, *pair)
    facts = [describe(cfg, vocabulary(cfg, vocab_size).size) for cfg in (first, second)]
    for name in _COUNTED:
        if facts[0][name] != facts[1][name]:
            yield Difference(name, *(Resolved(side[name], "derived") for side in facts))


def _cell(name: str, item: Resolved) -> str:
    if item is _ABSENT or (name in _COUNTED and item.value is None):
        return "-"
    return f"{f'{item.value:,.0f}' if name in _COUNTED else short(item.value)} ({item.source})"


def _as_dict(item: Difference) -> dict[str, Any]:
    return {"name": item.name, "a": item.first._asdict(), "b": item.second._asdict()}

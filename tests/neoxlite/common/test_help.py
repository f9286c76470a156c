"""The help of every command of neoxlite."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.testing import CliRunner

from neoxlite.cli.group import cli


def test_every_help_is_a_page_of_a_manual() -> None:
    """What it does in a sentence, lines to copy, a help for each option, and no line wider than a terminal."""
    aliases = {"neoxlite data prepare": "neoxlite prepare-data", "neoxlite data tokenize": "neoxlite tokenize"}
    for command, name in _commands_below(cli, "neoxlite"):
        help_text = CliRunner().invoke(command, ["--help"], prog_name=name, terminal_width=80).output
        assert not [line for line in help_text.splitlines() if len(line) > 80], name
        assert (command.help or "").partition("\n\n")[0].endswith("."), name
        shown = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert all(one.help for one in shown), name
        assert f"    {aliases.get(name, name)} " in help_text, name


def _commands_below(group: click.Group, name: str) -> Iterator[tuple[click.Command, str]]:
    """Yield a command and all below it, each with its words."""
    yield group, name
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands_below(command, f"{name} {word}")
        else:
            yield command, f"{name} {word}"

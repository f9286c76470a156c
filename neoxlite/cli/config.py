"""``neoxlite config``: what a configuration says, and what its keys mean."""

from __future__ import annotations

import click

from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "show": ("neoxlite.config.commands.show:show", "A configuration as resolved, each value with its origin."),
    "diff": ("neoxlite.config.commands.diff:diff", "How two configurations differ."),
    "keys": ("neoxlite.config.commands.keys:keys", "Keys: type, default, meaning, and what neoxlite does with them."),
    "schema": ("neoxlite.config.commands.schema:schema", "JSON Schema, for editors."),
}


class _ConfigGroup(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = f"To look at a configuration: neoxlite config show {' '.join(args)}"
            raise click.UsageError(f"{error.message}\n{hint}", ctx) from error


@click.group(cls=_ConfigGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Look at GPT-NeoX configurations before a GPU hour is spent on them.

    \b
    Examples:
      neoxlite config show 2-7B --world-size 16
      neoxlite config diff 1-3B 2-7B
      neoxlite config keys rotary
      neoxlite config schema > neox.schema.json
    """

"""``neoxlite config schema``: the JSON Schema of configuration files."""

from __future__ import annotations

import json

import click

from neoxlite.config.schema import json_schema


@click.command()
def schema() -> None:
    """Print the JSON Schema of configuration files, which editors complete and check with.

    \b
    For a file, with the YAML extension of VS Code, Vim, Emacs and others:
      neoxlite config schema > neox.schema.json
      # yaml-language-server: $schema=neox.schema.json   (first line of the .yml)
    """
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))

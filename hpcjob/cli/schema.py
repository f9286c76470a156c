"""``hpcjob schema``: the JSON Schema of the files that users write."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", type=click.Choice(["job", "profile"]))
def schema(what: str) -> None:
    """Print the JSON Schema of job files or profiles, for editors.

    \b
    Example, for an editor with the YAML language server:
      hpcjob schema job > job.schema.json
      # yaml-language-server: $schema=job.schema.json      (first line of a job file)
    """
    import json

    from hpcjob.schema import json_schema

    print(json.dumps(json_schema(what), indent=2, ensure_ascii=False))

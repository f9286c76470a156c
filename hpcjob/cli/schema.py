"""``hpcjob schema``: the JSON Schema of the files that users write."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", type=click.Choice(["job", "profile"]))
def schema(what: str) -> None:
    """Print the JSON Schema of job files or profiles, for editors.

    An editor with the YAML language server completes and checks a job file whose first line is
    `# yaml-language-server: $schema=job.schema.json`.

    \b
    Examples:
      hpcjob schema job > job.schema.json
      hpcjob schema profile > profile.schema.json
    """
    import json

    from hpcjob.schema import json_schema

    print(json.dumps(json_schema(what), indent=2, ensure_ascii=False))

"""``neoxlite convert inspect``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from neoxlite.convert.commands.options import iteration_option


@click.command("inspect")
@click.argument("folder", type=click.Path(path_type=Path))
@iteration_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, iteration: int | None, as_json: bool) -> int:
    """Show what the model in FOLDER is: a checkpoint of neoxlite or of GPT-NeoX, or a Hugging Face folder.

    All files are checked; damaged ones are named, and the exit code is 1 then.

    \b
    Examples:
      neoxlite convert inspect checkpoints
      neoxlite convert inspect checkpoints --iteration 1000 --json
      neoxlite convert inspect my-model
    """
    from neoxlite.convert.inspection import inspect
    from neoxlite.convert.sizes import size_text

    report = inspect(folder, iteration)
    if as_json:
        click.echo(json.dumps(asdict(report), ensure_ascii=False))
        return 1 if report.damage else 0
    others = ", ".join(map(str, report.other_iterations))
    rows = {
        "format": report.format,
        "folder": report.folder,
        "iteration": report.iteration,
        "parameters": f"{report.parameters:,}" if report.parameters else "not counted: files are damaged (below)",
        "dtype": report.dtype,
        "layout": report.layout,
        "optimizer": report.optimizer,
        "tokenizer": report.tokenizer,
        "layers": report.layers,
        "size": f"{size_text(report.nbytes)} in {report.files} files",
        "also there": f"iterations {others}" if others else None,
        **report.architecture,
    }
    for name, value in rows.items():
        if value is not None:
            click.echo(f"{name:<32}{value}")
    for text in report.damage:
        click.echo(f"{'DAMAGED':<32}{text}")
    return 1 if report.damage else 0

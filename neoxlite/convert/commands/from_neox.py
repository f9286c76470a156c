"""``neoxlite convert from-neox``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.convert.commands.options import iteration_option


@click.command("from-neox")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.argument("config", nargs=-1)
@click.option("-d", "--conf-dir", metavar="DIR", help="Folder of the configuration files.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Override a key of the configuration.")
@iteration_option
@click.option("--no-optimizer", is_flag=True, help="Take the weights alone.")
def command(
    checkpoint: Path,
    output: Path,
    config: tuple[str, ...],
    conf_dir: str | None,
    assignments: tuple[str, ...],
    iteration: int | None,
    no_optimizer: bool,
) -> None:
    """Write a CHECKPOINT of GPT-NeoX, of any layout, as checkpoint OUTPUT, from which training continues at any layout.

    CONFIG is what it was trained with; by default the files that the checkpoint keeps itself.

    \b
    Example:
      neoxlite convert from-neox neox-checkpoints start 2-7B.yml local_setup.yml
      neoxlite train 2-7B.yml local_setup.yml --set load=start
    """
    from neoxlite.config import parse_assignments
    from neoxlite.convert.from_neox import convert

    done = convert(
        checkpoint,
        output,
        config,
        conf_dir=conf_dir,
        overrides=parse_assignments(assignments),
        iteration=iteration,
        with_optimizer=not no_optimizer,
    )
    state = "with" if done.with_optimizer else "without"
    click.echo(f"{done.folder}: {done.parameters:,} parameters {state} optimizer state, from {done.layout}")
    click.echo(f"continue from iteration {done.iteration}: set load: {output}")

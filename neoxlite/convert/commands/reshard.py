"""``neoxlite convert reshard``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.convert.commands.options import dtype_option, iteration_option, torch_dtype


@click.command("reshard")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@iteration_option
@dtype_option
@click.option("--no-optimizer", is_flag=True, help="Write the weights alone.")
def command(checkpoint: Path, output: Path, iteration: int | None, dtype: str | None, no_optimizer: bool) -> None:
    """Rewrite CHECKPOINT: few files instead of many, in another precision, or without optimizer state.

    No layout has to be named: a checkpoint of neoxlite loads at any number of GPUs, stages and tensor ranks as it is.

    \b
    Examples:
      neoxlite convert reshard checkpoints small --no-optimizer --dtype bf16
      neoxlite convert reshard checkpoints/global_step1000 merged
    """
    from neoxlite.checkpoint.restore import folder_of
    from neoxlite.convert.reshard import reshard
    from neoxlite.convert.sizes import size_text

    done = reshard(folder_of(checkpoint, iteration), output, dtype=torch_dtype(dtype), with_optimizer=not no_optimizer)
    state = "with" if done.with_optimizer else "without"
    click.echo(
        f"{done.folder}: {done.files} files ({done.files_before} before), {size_text(done.nbytes)}, "
        f"{state} optimizer state; it loads at any layout, as before"
    )

"""``neoxlite convert to-hf``."""

from __future__ import annotations

from pathlib import Path

import click

from neoxlite.convert.commands.options import dtype_option, iteration_option, torch_dtype

_FAMILIES = {"neox": "gpt_neox", "llama": "llama", "mistral": "mistral"}


@click.command("to-hf")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@iteration_option
@click.option("--architecture", type=click.Choice(list(_FAMILIES)), help="[default: the first that the model fits]")
@dtype_option
@click.option(
    "--shard-gib",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Most of one file of weights, in GiB.",
)
@click.option("--no-tokenizer", is_flag=True, help="Leave the tokenizer out.")
@click.option("--prompt", metavar="TEXT", help="Compare the logits on this text.")
def command(
    checkpoint: Path,
    output: Path,
    iteration: int | None,
    architecture: str | None,
    dtype: str | None,
    shard_gib: float,
    no_tokenizer: bool,
    prompt: str | None,
) -> None:
    """Write CHECKPOINT as a Hugging Face folder OUTPUT: safetensors, configuration, generation settings, tokenizer.

    Before it appears, transformers reads it, and its logits on a prompt have to be the checkpoint's.

    \b
    Examples:
      neoxlite convert to-hf checkpoints my-model
      neoxlite convert to-hf checkpoints/global_step1000 my-model \\
          --architecture mistral --dtype bf16
    """
    from neoxlite.checkpoint.restore import folder_of
    from neoxlite.convert.compare import PROMPT
    from neoxlite.convert.sizes import size_text
    from neoxlite.convert.to_hf import export

    done = export(
        folder_of(checkpoint, iteration),
        output,
        family=_FAMILIES[architecture] if architecture else None,
        dtype=torch_dtype(dtype),
        shard_bytes=max(1, int(shard_gib * (1 << 30))),
        with_tokenizer=not no_tokenizer,
        prompt=prompt or PROMPT,
    )
    click.echo(done.comparison.line)
    click.echo(f"{output}: {done.class_name}, {done.parameters:,} parameters, {size_text(done.nbytes)}")

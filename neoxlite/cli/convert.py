"""``neoxlite convert``: checkpoints to and from other formats."""

from __future__ import annotations

import click

from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "to-hf": ("neoxlite.convert.commands.to_hf:command", "Convert a checkpoint to a Hugging Face folder."),
    "from-hf": (
        "neoxlite.convert.commands.from_hf:command",
        "Convert a Hugging Face folder to a checkpoint to train from.",
    ),
    "from-neox": ("neoxlite.convert.commands.from_neox:command", "Convert a GPT-NeoX checkpoint."),
    "reshard": ("neoxlite.convert.commands.reshard:command", "Rewrite a checkpoint: fewer files, other precision."),
    "inspect": ("neoxlite.convert.commands.inspect:command", "Show what a model folder is, and check it."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def convert() -> None:
    """Bring models from one format to another. Weights go from file to file in small blocks of memory.

    \b
    Examples:
      neoxlite convert inspect checkpoints
      neoxlite convert to-hf checkpoints my-model
      neoxlite convert from-hf pythia-160m start
      neoxlite convert from-neox neox-checkpoints start 2-7B.yml local_setup.yml
    """

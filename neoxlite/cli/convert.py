"""``neoxlite convert``: checkpoints to and from other formats."""

from __future__ import annotations

import click

from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "to-hf": ("neoxlite.convert.commands.to_hf:command", "A checkpoint as a Hugging Face folder."),
    "from-hf": ("neoxlite.convert.commands.from_hf:command", "A Hugging Face folder as a checkpoint to train from."),
    "from-neox": ("neoxlite.convert.commands.from_neox:command", "A checkpoint of GPT-NeoX, to go on from."),
    "reshard": ("neoxlite.convert.commands.reshard:command", "A checkpoint anew: fewer files, other precision."),
    "inspect": ("neoxlite.convert.commands.inspect:command", "What a folder of a model is, and if it is whole."),
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

"""What the ``neoxlite`` command consists of: one module per subcommand, imported on use."""

from __future__ import annotations

import click

from neoxlite import __version__
from neoxlite.common.cli import LazyGroup

_COMMANDS = {
    "prepare-data": (
        "neoxlite.data.commands.prepare:command",
        "Make the dataset of a known corpus (enwik8, openwebtext2, stdlib).",
    ),
    "tokenize": ("neoxlite.data.commands.tokenize:command", "Write .bin/.idx token files from text."),
    "data": ("neoxlite.cli.data:data", "Prepare, tokenize, inspect, verify, merge, split and repair datasets."),
    "train": ("neoxlite.cli.train:train", "Train from GPT-NeoX YAML files."),
    "launch": ("neoxlite.cli.launch:launch", "Start all ranks here or on the hosts of a hostfile, as deepy.py does."),
    "evaluate": ("neoxlite.cli.evaluate:evaluate", "Loss of a checkpoint on held-out data."),
    "generate": ("neoxlite.cli.generate:generate", "Continue a text with a checkpoint."),
    "convert": ("neoxlite.cli.convert:convert", "Checkpoints to and from Hugging Face and GPT-NeoX; inspect them."),
    "config": ("neoxlite.cli.config:config", "Show and compare configurations; explain keys; JSON Schema for editors."),
}

EXTRAS = dict.fromkeys(("torch", "deepspeed", "tensorboard", "tokenizers", "safetensors", "psutil"), "hpcjob[train]")
EXTRAS["transformers"] = "hpcjob[hf]"
"""Package -> the extra that has it."""


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="neoxlite")
def cli() -> None:
    """Train GPT-NeoX models with DeepSpeed, from GPT-NeoX YAML files.

    \b
    Examples:
      neoxlite prepare-data stdlib
      neoxlite train 2-7B.yml local_setup.yml
      neoxlite launch 2-7B.yml local_setup.yml --hostfile hosts
      neoxlite config show 2-7B.yml --world-size 16
      neoxlite generate --load checkpoints --prompt "def main("

    Any command takes --debug, which shows the traceback of an error.
    """

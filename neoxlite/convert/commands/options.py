"""What the subcommands of ``neoxlite convert`` share."""

from __future__ import annotations

from typing import Any

import click

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

iteration_option = click.option("--iteration", type=click.IntRange(min=0), help="Take this one, not the latest.")
dtype_option = click.option(
    "--dtype", type=click.Choice(list(DTYPES)), help="Precision of the weights. [default: kept]"
)


def torch_dtype(word: str | None) -> Any:
    """Return torch's dtype of a word of ``--dtype``; None for none."""
    if word is None:
        return None
    import torch

    return getattr(torch, DTYPES[word])

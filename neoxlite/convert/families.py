"""The Hugging Face architectures that a model can be."""

from __future__ import annotations

from typing import Any

from neoxlite.convert.family import Family
from neoxlite.convert.gpt_neox import GPT_NEOX
from neoxlite.convert.llama import LLAMA, MISTRAL
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec

FAMILIES = (GPT_NEOX, LLAMA, MISTRAL)


def family_of(spec: ModelSpec, asked: str | None) -> Family:
    """Return the architecture to export a model as: the one asked for, else the first that fits.

    Raises:
        CheckpointError: none fits, or the one asked for does not; the message has the keys.
    """
    candidates = [family for family in FAMILIES if asked in (None, family.name)]
    for family in candidates:
        if not family.obstacles(spec):
            return family
    # The reasons of the architecture that it is nearest to.
    nearest = min(candidates, key=lambda family: len(family.obstacles(spec)))
    raise CheckpointError(
        f"the model cannot be a {nearest.class_name}: {'; '.join(nearest.obstacles(spec))}",
        hint="no architecture of transformers that neoxlite writes has this"
        if asked is None
        else f"omit --architecture, or choose another: {', '.join(family.name for family in FAMILIES)}",
        exit_code=2,
    )


def family_named(model_type: Any) -> Family:
    """Return the architecture of a config.json's model_type. Raises CheckpointError for one that cannot be read."""
    for family in FAMILIES:
        if family.name == model_type:
            return family
    raise CheckpointError(
        f"config.json: model_type {model_type!r} cannot be read",
        hint=f"neoxlite reads {', '.join(family.name for family in FAMILIES)}",
        exit_code=2,
    )

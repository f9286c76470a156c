"""Parameters by their place in the layer list, whichever part of the model a rank holds."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

TIED_KEY = "embed"
_TIED_PREFIX = f"tied_modules.{TIED_KEY}."


def layer_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield (``<layer index>.<GPT-NeoX's name>``, parameter) of a whole model or of a pipeline stage.

    The matrix that embedding and head share belongs to layer 0, on the last stage too, which has a copy of it.
    """
    for name, parameter in module.named_parameters():
        yield (f"0.{name.removeprefix(_TIED_PREFIX)}" if name.startswith(_TIED_PREFIX) else name), parameter


def is_copy(parameter: Tensor) -> bool:
    """Tell whether another pipeline stage owns ``parameter``, and this one has a copy that follows it."""
    return bool(getattr(parameter, "ds_pipe_replicated", False))


def layer_place(index: int, num_layers: int) -> str:
    """Return where in the model a layer stands, for a person: ``block 3 (layer 5)``, counted from 0 as in the names."""
    if 2 <= index < num_layers + 2:
        return f"block {index - 2} (layer {index})"
    what = {0: "the embedding", num_layers + 3: "the final norm", num_layers + 4: "the head"}.get(index, "a helper")
    return f"{what} (layer {index})"

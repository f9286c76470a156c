"""The proof of a conversion: both models give the same logits for a prompt."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neoxlite.convert.hf_folder import HfFolder
from neoxlite.convert.streamed import our_logits, transformers_logits
from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError
from neoxlite.model.spec import ModelSpec

PROMPT = "The quick brown fox jumps over the lazy dog. 昔々ある所に、お爺さんがいました。 def f(x): return 3.14"
TOLERANCE = 1e-5
_MOST_TOKENS = 48
_FEWEST_TOKENS = 16


@dataclass(frozen=True)
class Comparison:
    """What was found."""

    difference: float
    """Largest absolute difference of a logit, fp32."""
    largest: float
    """Largest absolute logit."""
    tokens: int

    @property
    def limit(self) -> float:
        """The difference that rounding can make: `TOLERANCE`, in units of the largest logit where that is above 1."""
        return TOLERANCE * max(1.0, self.largest)

    @property
    def line(self) -> str:
        """For the user."""
        return (
            f"logits equal the source's: largest difference {self.difference:.1e} of {self.largest:.3g} "
            f"over {self.tokens} tokens, in fp32"
        )


def prompt_tokens(ids: list[int] | None, spec: ModelSpec) -> Tensor:
    """Return (1, length) tokens to compare on: those of the prompt, filled up from all over the vocabulary."""
    length = min(_MOST_TOKENS, spec.seq_length, spec.max_position_embeddings)
    found = [one for one in ids or [] if 0 <= one < spec.padded_vocab_size][: length - min(_FEWEST_TOKENS, length // 2)]
    step = max(1, spec.padded_vocab_size // _FEWEST_TOKENS)
    found += [(spec.padded_vocab_size - 1 - step * number) % spec.padded_vocab_size for number in range(_FEWEST_TOKENS)]
    return torch.tensor([found[:length]])


def compare_with_transformers(
    spec: ModelSpec, weights: Mapping[str, Weight], folder: Path, tokens: Tensor, class_name: str
) -> Comparison:
    """Compare our model with what transformers makes of ``folder``.

    Raises:
        CheckpointError: the logits are not the same, or transformers cannot read the folder.
    """
    theirs = hf_logits(folder, tokens)
    ours = our_logits(spec, weights, tokens)
    return checked(ours, theirs, f"{class_name} of transformers")


def hf_logits(folder: Path, tokens: Tensor) -> Tensor:
    """Return the logits of the model that transformers' own classes make of ``folder``."""
    with quiet():
        from transformers import AutoConfig, AutoModelForCausalLM

        make: Any = AutoModelForCausalLM.from_config
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            with torch.device("meta"):
                model = make(config, dtype=torch.float32, attn_implementation="sdpa")
        except TypeError:  # before 4.56 the argument had another name
            with torch.device("meta"):
                model = make(config, torch_dtype=torch.float32, attn_implementation="sdpa")
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{folder}: transformers cannot read it: {str(error).splitlines()[0]}", hint="copy the folder again"
            ) from None
        return transformers_logits(model, _by_parameter(model, HfFolder.open(folder).weights), tokens)


def _by_parameter(model: Any, stored: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the weights by the names of this release's modules, which renames the head of GPT-NeoX."""
    heads = [name for name in ("lm_head.weight", "embed_out.weight") if name in stored]
    tied = model.get_input_embeddings()
    embedding = next(f"{name}.weight" for name, module in model.named_modules() if module is tied)
    found = {}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name in stored:
            found[name] = stored[name]
        elif name in ("lm_head.weight", "embed_out.weight"):
            found[name] = stored[heads[0]] if heads else stored[embedding]
        else:
            raise CheckpointError(f"the folder has no weight {name}", hint="copy the folder again")
    return found


def checked(ours: Tensor, theirs: Tensor, whom: str) -> Comparison:
    """Return the comparison. Raises CheckpointError if the logits differ by more than rounding."""
    if not bool(ours.isfinite().all()):
        raise CheckpointError("the source's own logits are not finite", hint="take an earlier checkpoint")
    difference = (ours - theirs).abs()
    found = Comparison(float(difference.max()), float(ours.abs().max()), ours.shape[1])
    if not found.difference <= found.limit:  # not a number is no success either
        place = int(difference.nan_to_num(torch.inf).amax(-1).argmax())
        raise CheckpointError(
            f"the logits are not those of {whom}: they differ by {found.difference:.3g} (largest logit "
            f"{found.largest:.3g}), most at token {place} of the prompt",
            hint="nothing was written. This is a fault of the conversion or of the weights: please report it with the "
            "configuration",
        )
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' remarks to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging

        verbosity: Any = logging
        before = verbosity.get_verbosity()
        verbosity.set_verbosity_error()
        try:
            yield
        finally:
            verbosity.set_verbosity(before)

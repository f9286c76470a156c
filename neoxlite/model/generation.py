"""Text from a model, token by token, with a key/value cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neoxlite.errors import NeoxliteError
from neoxlite.model.cache import KeyValueCache
from neoxlite.model.gpt import GPTModel
from neoxlite.tokenizers import Tokenizer

_REPLACEMENT = "�"
# Logits divided by less could pass the range of fp32.
_LEAST_TEMPERATURE = 1e-6


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 1.0
    """0 takes the most probable token."""
    top_k: int = 0
    """Choose among the k most probable tokens only; 0 among all."""
    top_p: float = 0.0
    """Choose among the fewest tokens whose probabilities sum to p (Holtzman et al. 2020); 0 or 1 among all."""

    def __post_init__(self) -> None:
        """Raise NeoxliteError for a value that no choice can be made with; NaN is in no range."""
        if self.temperature != 0 and not _LEAST_TEMPERATURE <= self.temperature < math.inf:
            raise NeoxliteError(
                f"temperature: {self.temperature} is neither 0 nor a number from {_LEAST_TEMPERATURE} up",
                hint="give 0 for the most probable token, or a number such as 0.8",
                exit_code=2,
            )
        if not 0 <= self.top_p <= 1:
            raise NeoxliteError(f"top_p: {self.top_p} is not from 0 to 1", hint="give 0.9, or 0 for all", exit_code=2)
        if self.top_k < 0:
            raise NeoxliteError(f"top_k: {self.top_k} is below 0", hint="give 0 for all tokens", exit_code=2)


def next_token(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Return a token drawn from ``logits`` (vocabulary); the draw is made on the CPU, the same on every device."""
    logits = logits.float().cpu()
    if logits.isnan().any():
        raise NeoxliteError(
            "the model yields NaN: its weights are not finite", hint="take an earlier checkpoint with --iteration"
        )
    if sampling.temperature == 0:
        return int(logits.argmax())
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        logits[logits < logits.topk(sampling.top_k).values[-1]] = -torch.inf
    if 0 < sampling.top_p < 1:
        ordered, order = logits.sort(descending=True)
        probabilities = ordered.softmax(-1)
        # A token stays if those before it do not reach p yet: the first one always does.
        dropped = probabilities.cumsum(-1) - probabilities >= sampling.top_p
        logits[order[dropped]] = -torch.inf
    return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))


@torch.inference_mode()
def generate(
    model: GPTModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    *,
    vocab_size: int,
    eod: int | None,
) -> Iterator[int]:
    """Yield new tokens behind ``prompt`` until ``eod`` (which is not yielded), the number asked, or the model's length.

    Args:
        vocab_size: tokens from here on only pad the embedding and are never chosen.

    Raises:
        NeoxliteError: the prompt is empty, or fills the model's positions.
    """
    spec = model.spec
    if not prompt:
        raise NeoxliteError("the prompt has no tokens", hint="give some text", exit_code=2)
    if len(prompt) >= spec.max_position_embeddings:
        raise NeoxliteError(
            f"the prompt has {len(prompt)} tokens, the model {spec.max_position_embeddings} positions",
            hint="shorten the prompt",
            exit_code=2,
        )
    parameter = next(model.parameters())
    capacity = min(len(prompt) + max_new_tokens, spec.max_position_embeddings)
    cache = KeyValueCache(spec, 1, capacity, parameter.device, parameter.dtype)
    tokens = torch.tensor([list(prompt)], device=parameter.device)
    for _ in range(capacity - len(prompt)):
        token = next_token(model.generate_step(tokens, cache)[0, :vocab_size], sampling, generator)
        if token == eod:
            return
        yield token
        tokens = torch.tensor([[token]], device=parameter.device)


class TextStream:
    """Turns tokens into text as they come, holding back a character until all of its bytes are there."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]):
        self._tokenizer = tokenizer
        # Some decoders write a token differently at the beginning of a text: keep one before it.
        self._before = list(prompt[-1:])
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """Return the text that ``token`` completes; often all of it, sometimes none yet."""
        self._pending.append(token)
        text = self._text()
        if text.endswith(_REPLACEMENT):
            return ""
        self._before, self._pending = self._pending[-1:], []
        return text

    def flush(self) -> str:
        """Return what is held back, incomplete characters as U+FFFD."""
        return self._text() if self._pending else ""

    def _text(self) -> str:
        before = self._tokenizer.decode(self._before)
        whole = self._tokenizer.decode(self._before + self._pending)
        return whole[len(before) :] if whole.startswith(before) else self._tokenizer.decode(self._pending)

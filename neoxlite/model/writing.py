"""A model that continues texts: tokens in and out are a tokenizer's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from neoxlite.model.generation import Sampling, TextStream, generate
from neoxlite.model.gpt import GPTModel
from neoxlite.tokenizers import Tokenizer


@dataclass(frozen=True)
class Written:
    """What was written behind a prompt; ``finished``: the model ended the document itself."""

    text: str
    tokens: int
    finished: bool
    seconds: float


class Writer:
    """Continues texts with one random stream over all of them.

    Args:
        most: tokens of a continuation at most.
        seed: of the random stream.
    """

    def __init__(self, model: GPTModel, tokenizer: Tokenizer, sampling: Sampling, most: int, seed: int) -> None:
        self._model, self._tokenizer, self._sampling, self._most = model, tokenizer, sampling, most
        self._generator = torch.Generator().manual_seed(seed)

    def write(self, prompt: str, show: Callable[[str], None] = lambda part: None) -> Written:
        """Continue ``prompt``, and hand each piece of new text to ``show`` as it comes.

        Raises:
            NeoxliteError: the prompt is empty and the tokenizer has no end of document, or it is too long.
        """
        began = time.perf_counter()
        tokenizer = self._tokenizer
        tokens = tokenizer.encode(prompt)
        if not tokens and tokenizer.eod is not None:
            tokens = [tokenizer.eod]  # what follows the end of a document is the beginning of one
        stream = TextStream(tokenizer, tokens)
        parts: list[str] = []

        def push(part: str) -> None:
            parts.append(part)
            show(part)

        new = 0
        for token in generate(
            self._model,
            tokens,
            self._most,
            self._sampling,
            self._generator,
            vocab_size=tokenizer.vocab_size,
            eod=tokenizer.eod,
        ):
            new += 1
            push(stream.push(token))
        push(stream.flush())
        room = min(self._most, self._model.spec.max_position_embeddings - len(tokens))
        return Written("".join(parts), new, new < room, time.perf_counter() - began)

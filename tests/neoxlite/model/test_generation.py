"""Generation: the cache, the choice of tokens, the text as it streams."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from neoxlite.errors import NeoxliteError
from neoxlite.model.generation import Sampling, TextStream, generate, next_token
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec
from neoxlite.tokenizers import build_tokenizer

GREEDY = Sampling(temperature=0.0)


def small_model(**changes: Any) -> GPTModel:
    """Return an initialised model of 24 positions."""
    sizes: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_kv_heads": 4,
        "seq_length": 24,
        "max_position_embeddings": 24,
        "padded_vocab_size": 64,
        "mlp_hidden_size": 128,
        "rotary_pct": 0.5,
        "init_method_std": 0.3,
    }
    spec = ModelSpec(**{**sizes, **changes})
    model = GPTModel(spec).eval()
    initialise(model, spec, seed=3)
    return model


def new_tokens(model: GPTModel, prompt: list[int], count: int, sampling: Sampling, **changes: Any) -> list[int]:
    """Return the generated tokens."""
    options: dict[str, Any] = {"vocab_size": 60, "eod": None, **changes}
    generator = torch.Generator().manual_seed(1)
    return list(generate(model, prompt, count, sampling, generator, **options))


@pytest.mark.parametrize("changes", [{}, {"pos_emb": "learned"}, {"num_kv_heads": 2}, {"parallel_residual": True}])
def test_the_cache_gives_what_the_whole_sequence_gives(changes: dict[str, Any]) -> None:
    """Greedy tokens with the cache are those of running the full model over the growing text at each step."""
    model = small_model(**changes)
    prompt = [5, 9, 2]
    expected = list(prompt)
    with torch.no_grad():
        for _ in range(12):
            expected.append(int(model(torch.tensor([expected]))[0, -1, :60].argmax()))
    assert new_tokens(model, prompt, 12, GREEDY) == expected[3:]


def test_a_prompt_in_two_parts_attends_as_in_one() -> None:
    """Several tokens behind cached ones see all of the past and not their own future."""
    from neoxlite.model.cache import KeyValueCache

    model = small_model()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    cache = KeyValueCache(model.spec, 1, 8, torch.device("cpu"), torch.float32)
    with torch.no_grad():
        model.generate_step(tokens[:, :2], cache)
        got = model.generate_step(tokens[:, 2:], cache)
        torch.testing.assert_close(got, model(tokens)[:, -1])


def test_it_ends_at_the_end_of_document_and_at_the_last_position() -> None:
    """The end-of-document token ends the text and is not part of it; without one the positions run out."""
    model = small_model()
    unlimited = new_tokens(model, [5, 9, 2], 100, GREEDY)
    assert len(unlimited) == 24 - 3
    eod = unlimited[4]
    assert new_tokens(model, [5, 9, 2], 100, GREEDY, eod=eod) == unlimited[: unlimited.index(eod)]


@pytest.mark.parametrize(("prompt", "message"), [([], "no tokens"), ([1] * 24, "24 positions")])
def test_prompts_that_cannot_be_continued_are_refused(prompt: list[int], message: str) -> None:
    """An empty prompt and one that fills the model are user errors."""
    with pytest.raises(NeoxliteError, match=message):
        new_tokens(small_model(), prompt, 1, GREEDY)


def test_top_k_top_p_and_padding_limit_the_choice() -> None:
    """Only the k most probable, or the fewest that reach p, can be drawn; each of those can."""
    logits = torch.tensor([4.0, 3.0, 2.0, 1.0, -2.0])  # probabilities .643 .237 .087 .032 .002
    generator = torch.Generator().manual_seed(0)

    def drawn(sampling: Sampling) -> set[int]:
        return {next_token(logits, sampling, generator) for _ in range(400)}

    assert drawn(Sampling(top_k=2)) == {0, 1}
    assert drawn(Sampling(top_p=0.7)) == {0, 1}
    assert drawn(Sampling(top_p=0.5)) == {0}
    assert drawn(Sampling(temperature=5.0)) == {0, 1, 2, 3, 4}
    assert drawn(GREEDY) == {0}
    assert torch.equal(logits, torch.tensor([4.0, 3.0, 2.0, 1.0, -2.0]))


def test_the_seed_decides_the_text() -> None:
    """Two runs with one seed draw the same tokens, and padding tokens are never among them."""
    model = small_model()
    sampling = Sampling(temperature=3.0)
    first = new_tokens(model, [5], 20, sampling, vocab_size=8)
    assert first == new_tokens(model, [5], 20, sampling, vocab_size=8)
    assert max(first) < 8


def test_japanese_streams_in_whole_characters() -> None:
    """A character of several tokens appears when its last byte is there; what is cut off at the end shows as U+FFFD."""
    tokenizer = build_tokenizer("CharLevelTokenizer")
    tokens = tokenizer.encode("日本語 abc")
    assert len(tokens) == 3 * 3 + 4
    stream = TextStream(tokenizer, tokenizer.encode("昔"))
    pieces = [stream.push(token) for token in tokens]
    assert pieces == ["", "", "日", "", "", "本", "", "", "語", " ", "a", "b", "c"]
    assert stream.flush() == ""
    assert stream.push(tokens[0]) == ""
    assert "�" in stream.flush()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"temperature": float("inf")}, "temperature: inf"),
        ({"temperature": 1e-300}, "temperature: 1e-300"),
        ({"temperature": -1.0}, "temperature: -1.0"),
        ({"top_p": float("nan")}, "top_p: nan"),
        ({"top_p": 1.5}, "top_p: 1.5"),
        ({"top_k": -1}, "top_k: -1"),
    ],
)
def test_what_no_token_can_be_drawn_with_is_refused(wrong: dict[str, Any], told: str) -> None:
    """NaN is outside of every range, and a temperature that would divide logits out of fp32 is too."""
    with pytest.raises(NeoxliteError, match=told) as caught:
        Sampling(**wrong)
    assert caught.value.exit_code == 2


def test_the_least_temperature_draws_the_most_probable() -> None:
    """At the smallest value allowed fp32 holds the quotients, and the draw is that of temperature 0."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor([3e4, 3.1e4, -1e4])
    assert next_token(logits, Sampling(temperature=1e-6), generator) == 1


def test_a_model_that_yields_nan_is_named(command: Any, tmp_path: Any) -> None:
    """Weights that are not finite end in a message, and options out of range before anything is read."""
    model = small_model()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(NeoxliteError, match="the model yields NaN"):
        new_tokens(model, [5], 1, Sampling())
    for option, value in (
        ("--temperature", "nan"),
        ("--temperature", "1e-300"),
        ("--top-p", "nan"),
        ("--seed", "9" * 40),
    ):
        code, _, err = command("generate", "--load", str(tmp_path), "--prompt", "x", option, value)
        assert code == 2
        assert "Traceback" not in err
        assert option.strip("-").replace("-", "_") in err.replace("-", "_")

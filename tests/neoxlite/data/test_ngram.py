"""The n-gram baselines against values computed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.data import ngram
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.ngram import KneserNeyBigram, measure_baselines
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError


def test_by_hand(written: Callable[..., str]) -> None:
    """Both models on a stream of eight tokens, every number worked out by hand.

    Training 0 1 0 1 2 0 2 2 over 4 tokens; held out 0 1 2 3 0.
    Unigram counts 3 2 3 0: P = 4/12, 3/12, 4/12, 1/12.
    Bigrams 01:2, 10:1, 12:1, 20:1, 02:1, 22:1; once 5, twice 1: D = 5/7.
    Predecessors: 0 after {1, 2}, 1 after {0}, 2 after {1, 0, 2}; once 1, twice 1: D' = 1/3.
    P'(w) = max(N(.w) - 1/3, 0) / 6 + (3 x 1/3 / 6) / 4 = 5/18 + 1/24, 1/9 + 1/24, 4/9 + 1/24, 1/24.
    P(1|0) = (2 - 5/7)/3 + (5/7)(2/3) P'(1); P(2|1) = (1 - 5/7)/2 + (5/7)(2/2) P'(2);
    P(3|2) = (5/7)(2/2) P'(3) with c(2) = 2; P(0|3) = P'(0), as 3 was never seen.
    """
    train = IndexedDataset(written([[0, 1, 0], [1, 2, 0, 2], [], [2]], name="train"))
    valid = IndexedDataset(written([[0, 1, 2, 3, 0]], name="valid"))
    result = measure_baselines(train, valid, 4)
    unigram = [Fraction(3, 12), Fraction(4, 12), Fraction(1, 12), Fraction(4, 12)]
    lower = [Fraction(5, 18), Fraction(1, 9), Fraction(4, 9), Fraction(0)]
    lower = [part + Fraction(1, 24) for part in lower]
    assert sum(lower) == 1
    d = Fraction(5, 7)
    bigram = [
        (2 - d) / 3 + d * Fraction(2, 3) * lower[1],
        (1 - d) / 2 + d * lower[2],
        d * lower[3],
        lower[0],
    ]
    assert result.unigram == pytest.approx(-sum(math.log(p) for p in unigram) / 4, rel=1e-12)
    assert result.bigram == pytest.approx(-sum(math.log(p) for p in bigram) / 4, rel=1e-12)
    assert result.discount == pytest.approx(5 / 7)
    assert (result.train_tokens, result.valid_tokens, result.vocab_size) == (8, 4, 4)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(5, 7))
def test_probabilities_add_up(tmp_path_factory: pytest.TempPathFactory, tokens: list[int], vocab_size: int) -> None:
    """After every token, seen or not, the probabilities of all tokens add up to one."""
    prefix = tmp_path_factory.getbasetemp() / "kneser_ney"
    with DatasetWriter(prefix, "uint16") as writer:
        writer.add_document(tokens)
    model = KneserNeyBigram.fit(IndexedDataset(prefix), vocab_size)
    for history in range(vocab_size):
        probabilities = model.probability(np.full(vocab_size, history), np.arange(vocab_size))
        assert (probabilities > 0).all()
        assert probabilities.sum() == pytest.approx(1, rel=1e-12)


def test_chunks_do_not_matter(written: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting in pieces loses no bigram at their borders."""
    tokens = np.random.RandomState(3).randint(0, 9, 500).tolist()
    train = IndexedDataset(written([tokens[:300]], name="train"))
    valid = IndexedDataset(written([tokens[300:]], name="valid"))
    whole = measure_baselines(train, valid)
    monkeypatch.setattr(ngram, "_CHUNK_TOKENS", 7)
    pieces = measure_baselines(train, valid)
    assert pieces.unigram == pytest.approx(whole.unigram, rel=1e-12)
    assert pieces.bigram == pytest.approx(whole.bigram, rel=1e-12)


def test_bigram_uses_the_order(written: Callable[..., str]) -> None:
    """On a stream where each token decides the next, the bigram model is far below the unigram model's log V."""
    cycle = list(range(8)) * 200
    train, valid = IndexedDataset(written([cycle], name="train")), IndexedDataset(written([cycle[:80]], name="valid"))
    result = measure_baselines(train, valid)
    assert result.unigram == pytest.approx(math.log(8), rel=1e-3)
    assert result.bigram < 0.05


def test_refused(written: Callable[..., str]) -> None:
    """Too little text and a token outside the vocabulary are named."""
    one, two = IndexedDataset(written([[1]], name="one")), IndexedDataset(written([[1, 2]], name="two"))
    with pytest.raises(DataError, match="one: 1 tokens; at least 2 are needed"):
        measure_baselines(one, two)
    with pytest.raises(DataError, match="token 2 lies outside a vocabulary of 2"):
        measure_baselines(two, two, 2)

"""Losses of unigram and bigram models: what a trained model has to beat on the same held-out tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neoxlite.data.indexed import IndexedDataset
from neoxlite.errors import DataError

_CHUNK_TOKENS: Final = 1 << 22
_FALLBACK_DISCOUNT: Final = 0.75  # where the counts give no estimate: the usual fixed value (Church and Gale 1991)

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Baselines:
    """Cross entropies in nats per held-out token. The first held-out token, which has no history, is not counted.

    Attributes:
        unigram: token frequencies with add-one smoothing.
        bigram: interpolated Kneser-Ney.
        train_tokens: tokens the models are fitted on.
        valid_tokens: held-out tokens that are predicted.
        vocab_size: tokens the smoothing spreads probability over.
        discount: of the bigram counts.
    """

    unigram: float
    bigram: float
    train_tokens: int
    valid_tokens: int
    vocab_size: int
    discount: float


def measure_baselines(train: IndexedDataset, valid: IndexedDataset, vocab_size: int | None = None) -> Baselines:
    """Fit both models on ``train`` and measure them on ``valid``.

    The documents are read as one stream in the order stored, as a language model's samples run across documents too.
    Memory grows with the number of different bigrams, not with the tokens.

    Args:
        train, valid: datasets of the same tokenizer.
        vocab_size: size of the vocabulary; by default one more than the largest token in either.

    Raises:
        DataError: fewer than two tokens, or a token outside the vocabulary.
    """
    largest = max(train.verify().largest_id, valid.verify().largest_id)
    size = largest + 1 if vocab_size is None else vocab_size
    if largest >= size:
        raise DataError(f"token {largest} lies outside a vocabulary of {size}", hint="give the tokenizer's size")
    for dataset in (train, valid):
        if dataset.num_tokens < 2:
            raise DataError(
                f"{dataset.prefix}: {dataset.num_tokens} tokens; at least 2 are needed", hint="give more text"
            )
    unigram = AddOneUnigram.fit(train, size)
    bigram = KneserNeyBigram.fit(train, size)
    unigram_sum = bigram_sum = 0.0
    for previous, following in _bigrams(valid):
        unigram_sum -= float(np.log(unigram.probability(following)).sum())
        bigram_sum -= float(np.log(bigram.probability(previous, following)).sum())
    count = valid.num_tokens - 1
    return Baselines(unigram_sum / count, bigram_sum / count, train.num_tokens, count, size, bigram.discount)


@dataclass(frozen=True)
class AddOneUnigram:
    """P(w) = (c(w) + 1) / (N + V), Laplace's rule.

    Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1999, section 2.1.
    """

    probabilities: FloatArray

    @classmethod
    def fit(cls, train: IndexedDataset, vocab_size: int) -> AddOneUnigram:
        """Count the tokens of ``train``."""
        counts = np.ones(vocab_size)
        for start in range(0, train.num_tokens, _CHUNK_TOKENS):
            counts += np.bincount(train.tokens(start, start + _CHUNK_TOKENS), minlength=vocab_size)
        return cls(counts / (train.num_tokens + vocab_size))

    def probability(self, tokens: IntArray) -> FloatArray:
        """Return P(token) of each token."""
        return self.probabilities[tokens]


@dataclass(frozen=True)
class KneserNeyBigram:
    """Interpolated Kneser-Ney (Kneser and Ney 1995; Chen and Goodman 1999, section 2.7, equation 20).

    P(w|h) = max(c(h,w) - D, 0) / c(h) + D N(h.) / c(h) P'(w), where N(h.) counts the different successors of h. P'(w)
    is made in the same way from N(.w), the different predecessors of w, and the uniform distribution. A history that
    was never seen leaves P'(w).

    Attributes:
        pairs: h * V + w of every bigram seen, ascending.
        counts: how often, in the same order.
        history_counts: c(h), shape [V].
        history_types: N(h.), shape [V].
        lower: P'(w), shape [V].
        discount: D = n1 / (n1 + 2 n2), from the bigrams seen once and twice.
    """

    pairs: IntArray
    counts: IntArray
    history_counts: IntArray
    history_types: IntArray
    lower: FloatArray
    discount: float

    @classmethod
    def fit(cls, train: IndexedDataset, vocab_size: int) -> KneserNeyBigram:
        """Count the bigrams of ``train``."""
        pairs, counts = _count_pairs(train, vocab_size)
        histories, words = np.divmod(pairs, vocab_size)
        predecessors = np.bincount(words, minlength=vocab_size)
        lower_discount = _discount(predecessors)
        kept = np.maximum(predecessors - lower_discount, 0).sum()
        spread = (len(pairs) - kept) / vocab_size
        lower = (np.maximum(predecessors - lower_discount, 0) + spread) / len(pairs)
        history_counts = np.zeros(vocab_size, np.int64)
        np.add.at(history_counts, histories, counts)
        history_types = np.bincount(histories, minlength=vocab_size)
        return cls(pairs, counts, history_counts, history_types, lower, _discount(counts))

    def probability(self, previous: IntArray, following: IntArray) -> FloatArray:
        """Return P(following | previous) of each pair."""
        wanted = previous * len(self.lower) + following
        places = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        counts = np.where(self.pairs[places] == wanted, self.counts[places], 0)
        totals = np.maximum(self.history_counts[previous], 1)
        left_over = self.discount * self.history_types[previous] / totals
        left_over = np.where(self.history_counts[previous] > 0, left_over, 1.0)
        return np.asarray(np.maximum(counts - self.discount, 0) / totals + left_over * self.lower[following])


def _discount(counts: npt.NDArray[np.integer[Any]]) -> float:
    """Return the discount that leaving one out gives (Ney, Essen and Kneser 1994)."""
    once, twice = int(np.sum(counts == 1)), int(np.sum(counts == 2))
    return once / (once + 2 * twice) if once and twice else _FALLBACK_DISCOUNT


def _bigrams(dataset: IndexedDataset) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (token before, token) of all tokens but the first, a few million at a time."""
    for start in range(0, dataset.num_tokens - 1, _CHUNK_TOKENS):
        stream = dataset.tokens(start, min(start + _CHUNK_TOKENS + 1, dataset.num_tokens)).astype(np.int64)
        yield stream[:-1], stream[1:]


def _count_pairs(dataset: IndexedDataset, vocab_size: int) -> tuple[IntArray, IntArray]:
    """Return the different bigrams as h * V + w, ascending, and their counts."""
    pairs, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for previous, following in _bigrams(dataset):
        new_pairs, new_counts = np.unique(previous * vocab_size + following, return_counts=True)
        both = np.concatenate((pairs, new_pairs))
        pairs, places = np.unique(both, return_inverse=True)
        merged = np.zeros(len(pairs), np.int64)
        np.add.at(merged, places, np.concatenate((counts, new_counts)))
        counts = merged
    return pairs, counts

"""From a configuration to the training, validation and test samples."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from neoxlite.data.blending import BlendedDataset, normalize_weights, samples_per_dataset, weights_by_documents
from neoxlite.data.dataset_info import check_dataset
from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.data.index_cache import IndexRequest, build_blend, build_index
from neoxlite.data.index_map import epochs_needed
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.split import split_documents
from neoxlite.errors import DataError
from neoxlite.tokenizers.base import Tokenizer

SPLITS = ("train", "valid", "test")
_LOG = logging.getLogger(__name__)
_MANY_EPOCHS: Final = 100
_MAX_EPOCHS: Final = 10_000


class DataSettings(Protocol):
    """The GPT-NeoX keys that decide what is read; a `neoxlite.config.NeoxConfig` is one of these."""

    @property
    def data_path(self) -> str | None: ...
    @property
    def train_data_paths(self) -> list[str] | None: ...
    @property
    def valid_data_paths(self) -> list[str] | None: ...
    @property
    def test_data_paths(self) -> list[str] | None: ...
    @property
    def train_data_weights(self) -> list[float] | None: ...
    @property
    def valid_data_weights(self) -> list[float] | None: ...
    @property
    def test_data_weights(self) -> list[float] | None: ...
    @property
    def weight_by_num_documents(self) -> bool: ...
    @property
    def weighted_sampler_alpha(self) -> float: ...
    @property
    def split(self) -> str: ...
    @property
    def seq_length(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def train_iters(self) -> int | None: ...
    @property
    def eval_interval(self) -> int: ...
    @property
    def eval_iters(self) -> int: ...
    @property
    def train_batch_size(self) -> int: ...


@dataclass(frozen=True)
class Source:
    """One dataset as one split uses it; ``order`` is a digest of what the order of its samples depends on."""

    split: str
    dataset: GPTDataset
    documents: range
    weight: float
    order: str


@dataclass(frozen=True)
class DataSets:
    """The three splits; None where a split is empty or not given."""

    train: GPTDataset | BlendedDataset | None
    valid: GPTDataset | BlendedDataset | None
    test: GPTDataset | BlendedDataset | None
    sources: tuple[Source, ...]

    def check(self, tokenizer: Tokenizer, padded_vocab_size: int) -> None:
        """Refuse datasets that another tokenizer made. Raises DataError as `check_dataset` does."""
        for dataset in {source.dataset.dataset.prefix: source.dataset.dataset for source in self.sources}.values():
            check_dataset(dataset, tokenizer, padded_vocab_size)

    def order(self, split: str) -> str:
        """Return a digest of what the order of a split's samples depends on: sizes, epochs, weights, seed and length.

        It does not depend on where the files are, nor on the tokens in them.
        """
        parts = [(source.order, source.weight.hex()) for source in self.sources if source.split == split]
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()

    def describe(self) -> str:
        """Return a table of what each split reads: documents, tokens, epochs, samples."""
        rows = [("split", "dataset", "weight", "documents", "tokens", "epochs", "samples")]
        for source in self.sources:
            indexed, index_map = source.dataset.dataset, source.dataset.index_map
            tokens = int(indexed.sizes[source.documents.start : source.documents.stop].sum(dtype="int64"))
            rows.append(
                (
                    source.split,
                    indexed.prefix,
                    f"{source.weight:.4g}",
                    f"{len(source.documents):,}",
                    f"{tokens:,}",
                    f"{index_map.epochs}",
                    f"{len(source.dataset):,}",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for row in rows:
            left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
            right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            lines.append("  ".join(left + right))
        return "\n".join(lines)


Wanted = tuple[int | None, int | None, int | None]


def epoch_iterations(samples: int, epochs: int, *, micro_batches: int, gradient_accumulation_steps: int) -> int:
    """Return the iterations of whole passes over ``samples`` (training.py at ea7aefd8, key train_epochs).

    Args:
        samples: length of the training samples that `build_datasets` makes of one epoch.
        epochs: passes.
        micro_batches: samples of a batch of all ranks, micro-batch x data-parallel size.
    """
    return samples // micro_batches * epochs // gradient_accumulation_steps


def samples_wanted(cfg: DataSettings) -> tuple[int, int, int]:
    """Return the samples that training, validation and testing read in all (data_utils.py at ea7aefd8)."""
    if cfg.train_iters is None:
        raise DataError("train_iters is not set, so the samples to prepare are not known", hint="set train_iters")
    evaluations = cfg.train_iters // cfg.eval_interval + 1 if cfg.eval_interval else 1
    batch = cfg.train_batch_size
    return cfg.train_iters * batch, evaluations * cfg.eval_iters * batch, cfg.eval_iters * batch


def build_datasets(
    cfg: DataSettings,
    num_samples: Wanted | None = None,
    *,
    is_builder: bool = True,
    wait: Callable[[], None] | None = None,
) -> DataSets:
    """Open the datasets of a configuration and prepare the order of their samples.

    Args:
        cfg: the configuration.
        num_samples: samples wanted for training, validation and testing; by default what `samples_wanted` says. None
            for a split reads each of its documents once, as upstream does for train_epochs.
        is_builder: true in the one process (of the job, or of each node without a shared file system) that writes the
            index files.
        wait: barrier between the builder and the others, with a time limit of its own. It is reached exactly once by
            every process, also by a builder that fails.

    Raises:
        DataError: a dataset is missing or damaged, too small, or a key does not fit.
    """
    if not is_builder and wait is not None:
        wait()
    try:
        wanted = samples_wanted(cfg) if num_samples is None else num_samples
        return _Builder(cfg, is_builder).build(wanted)
    finally:
        if is_builder and wait is not None:
            wait()


class _Builder:
    def __init__(self, cfg: DataSettings, is_builder: bool) -> None:
        self._cfg = cfg
        self._is_builder = is_builder
        self._sources: list[Source] = []

    def build(self, wanted: Wanted) -> DataSets:
        cfg = self._cfg
        lists = (cfg.train_data_paths, cfg.valid_data_paths, cfg.test_data_paths)
        if cfg.data_path and any(lists):
            raise DataError(
                "data_path and train_data_paths/valid_data_paths/test_data_paths are both set",
                hint="keep data_path (divided by split), or the lists (one for each split)",
            )
        parts: list[GPTDataset | BlendedDataset | None]
        if any(lists):
            weights = (cfg.train_data_weights, cfg.valid_data_weights, cfg.test_data_weights)
            parts = [self._mixture(*part) for part in zip(SPLITS, lists, weights, wanted, strict=True)]
        elif cfg.data_path:
            dataset = IndexedDataset(cfg.data_path)
            ranges = split_documents(cfg.split, len(dataset))
            parts = [
                self._samples(split, split, dataset, documents, count)
                for split, documents, count in zip(SPLITS, ranges, wanted, strict=True)
            ]
        else:
            raise DataError("no data: neither data_path nor train_data_paths is set", hint="set data_path: PREFIX")
        return DataSets(parts[0], parts[1], parts[2], tuple(self._sources))

    def _mixture(
        self, split: str, paths: Sequence[str] | None, weights: Sequence[float] | None, wanted: int | None
    ) -> BlendedDataset | None:
        if not paths:
            return None
        datasets = [IndexedDataset(path) for path in paths]
        if self._cfg.weight_by_num_documents:
            weights = weights_by_documents([len(dataset) for dataset in datasets], self._cfg.weighted_sampler_alpha)
        elif weights is None:
            weights = [1.0] * len(paths)
        if len(weights) != len(paths):
            raise DataError(
                f"{split}_data_weights has {len(weights)} weights for {len(paths)} {split}_data_paths",
                hint="give one weight for each dataset",
            )
        weights = normalize_weights(weights, f"{split}_data_weights")
        counts = [None] * len(weights) if wanted is None else samples_per_dataset(weights, wanted)
        members = []
        for number, (dataset, count, weight) in enumerate(zip(datasets, counts, weights, strict=True)):
            member = self._samples(split, f"{split}_{number}", dataset, range(len(dataset)), count, weight)
            if member is None:
                raise DataError(f"{dataset.prefix} has no documents", hint=f"take it out of {split}_data_paths")
            members.append(member)
        lengths = [len(member) for member in members]
        order, within = build_blend(datasets[0].prefix, split, weights, lengths, is_builder=self._is_builder)
        return BlendedDataset(members, order, within)

    def _samples(
        self, split: str, name: str, dataset: IndexedDataset, documents: range, wanted: int | None, weight: float = 1.0
    ) -> GPTDataset | None:
        if not documents:
            return None
        epochs = 1 if wanted is None else None
        request = IndexRequest(dataset, documents, name, wanted, self._cfg.seq_length, self._cfg.seed, epochs)
        try:
            _check_epochs(request)
            index_map, _ = build_index(request, is_builder=self._is_builder)
        except DataError as error:
            raise DataError(f"{dataset.prefix}, {split}: {error.message}", hint=error.hint) from error
        samples = GPTDataset(dataset, index_map, self._cfg.seq_length)
        self._sources.append(Source(split, samples, documents, weight, request.order(index_map.epochs)))
        return samples


def _check_epochs(request: IndexRequest) -> None:
    """Refuse a number of epochs that is a mistake in the configuration, and say one that may be."""
    tokens = request.num_tokens
    if request.num_samples is None or tokens == 0:
        return
    epochs = epochs_needed(tokens, request.seq_length, request.num_samples)
    told = f"{epochs:,} epochs of {tokens:,} tokens for {request.num_samples:,} samples of {request.seq_length} tokens"
    if epochs > _MAX_EPOCHS:
        raise DataError(told, hint="give more text, a larger share of split, or fewer train_iters")
    if epochs > _MANY_EPOCHS:
        _LOG.warning("%s: %s", request.dataset.prefix, told)

"""The data of a run: opened and checked before the first step, read ahead of its use, and gone on with exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.data import (
    DataSets,
    MicroBatches,
    PrefetchedBatches,
    build_datasets,
    epoch_iterations,
    samples_wanted,
    valid_start_batch,
)
from neoxlite.data.pinned import pinned
from neoxlite.errors import CheckpointError, ConfigError
from neoxlite.parallel.topology import Topology
from neoxlite.tokenizers import Tokenizer

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig
    from neoxlite.data.gpt_dataset import SampleDataset

_ANOTHER_ORDER = (
    "WARNING: the training data are not those of the checkpoint, or seq_length, seed, split or weights have changed: "
    "samples may come again or be skipped from here on. Training continues, as data may be added on purpose; with "
    "finetune: true the weights begin at the first sample of the new data"
)


@dataclass(frozen=True)
class DataState:
    """What a checkpoint says of the data.

    Attributes:
        samples: for how many training samples the order was made; None: for one epoch (train_epochs). The order is a
            shuffling of all epochs together, so a run that is resumed with more iterations or another batch size keeps
            this number, and with it the order.
        next_sample: sample of a pass at which the next iteration begins.
        order: digest of what the order depends on; empty where a checkpoint of an older version does not say.
    """

    samples: int | None
    next_sample: int
    order: str = ""

    @classmethod
    def of(cls, training: Mapping[str, Any]) -> DataState | None:
        """Read the state from a manifest's ``training``; None where an older version did not write it.

        Raises:
            CheckpointError: it is damaged.
        """
        told = training.get("data")
        if told is None:
            return None
        try:
            state = cls(told["samples"], told["next_sample"], told["order"])
        except (KeyError, TypeError):
            state = None
        if state is None or not _is_count(state.next_sample) or not (state.samples is None or _is_count(state.samples)):
            raise CheckpointError(
                f"the checkpoint's training.data is damaged: {str(told)[:60]}", hint="load an older one: --iteration N"
            )
        return state


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class RunData:
    """The three splits of a run and where training is in the first. Every rank makes one.

    Args:
        saved: what the checkpoint that is resumed says; None for a new run.
        consumed_samples: of that checkpoint, for those that say no more.
        say: prints a line on the first rank.

    Attributes:
        sets: the splits.
        train_iters: iterations to train, of the configuration or computed from train_epochs.

    Raises:
        DataError: a dataset is missing, damaged, too small, made by another tokenizer, or read absurdly often.
        ConfigError: there is no training data.
    """

    def __init__(
        self,
        cfg: NeoxConfig,
        topology: Topology,
        device: torch.device,
        tokenizer: Tokenizer,
        padded_vocab_size: int,
        *,
        saved: DataState | None,
        consumed_samples: int,
        say: Callable[[str], None],
    ) -> None:
        self._cfg, self._topology, self._device = cfg, topology, device
        self._vocab_size = padded_vocab_size
        self._say = say
        in_epochs = cfg.train_epochs is not None
        own, valid, test = (None, None, None) if in_epochs else samples_wanted(cfg)
        self._samples = own if saved is None else saved.samples
        barrier = dist.barrier if topology.grid.world_size > 1 else None
        self.sets: DataSets = build_datasets(
            cfg, (self._samples, valid, test), is_builder=topology.rank == 0, wait=barrier
        )
        if self.sets.train is None:
            raise ConfigError("there is no training data", hint="give split a share above 0 for training")
        say(self.sets.describe())
        if cfg.eval_iters > 0 and self.sets.valid is None:
            say(f"nothing is evaluated in training: split: {cfg.split} leaves no document for validation")
        self.sets.check(tokenizer, padded_vocab_size)
        self.train_iters = self._epoch_iterations(cfg.train_epochs) if cfg.train_epochs is not None else cfg.train_iters
        first = self.batches(self.sets.train)
        self._pass = first.batches * cfg.train_micro_batch_size_per_gpu * topology.data_size
        self._next = self._place(saved, consumed_samples, own)

    def _epoch_iterations(self, epochs: int) -> int:
        cfg, samples = self._cfg, len(self.sets.train or ())
        together = cfg.train_micro_batch_size_per_gpu * self._topology.data_size
        accumulation = cfg.gradient_accumulation_steps
        iterations = epoch_iterations(samples, epochs, micro_batches=together, gradient_accumulation_steps=accumulation)
        if iterations == 0:
            raise ConfigError(
                f"train_epochs: {epochs} of {samples:,} samples are less than one batch of {cfg.train_batch_size}",
                hint="give more text, a smaller batch or seq_length, or more epochs",
            )
        self._say(f"train_epochs {epochs}: {iterations:,} iterations of {cfg.train_batch_size} of {samples:,} samples")
        return iterations

    def _place(self, saved: DataState | None, consumed_samples: int, wanted: int | None) -> int:
        """Return the sample of a pass to begin at, and say what the user should know.

        Args:
            wanted: samples of the whole run as it is configured now; None with train_epochs.
        """
        if saved is None:
            place = consumed_samples % self._pass
        else:
            # Behind the last whole batch of this layout a pass begins again.
            place = saved.next_sample if saved.next_sample < self._pass else 0
            if wanted is not None and saved.samples is not None and wanted > max(saved.samples, self._pass):
                self._say(
                    f"the order of the data is kept: made for {saved.samples:,} samples, it is read again from its "
                    f"beginning for the {wanted:,} of this run, where GPT-NeoX would shuffle again (for a new order: "
                    "finetune: true, which restarts data and schedule)"
                )
            if saved.order and saved.order != self.order:
                self._say(_ANOTHER_ORDER)
        if consumed_samples:
            self._say(f"training data continues at sample {place:,} of {self._pass:,}")
        return place

    @property
    def order(self) -> str:
        """Digest of what the order of the training data depends on."""
        return self.sets.order("train")

    def advance(self, samples: int) -> None:
        """Count the samples of an iteration."""
        self._next = (self._next + samples) % self._pass

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of the data; see `DataState`."""
        return {"samples": self._samples, "next_sample": self._next, "order": self.order}

    def train_batches(self) -> PrefetchedBatches[Tensor]:
        """Return this rank's micro-batches from here on, read ahead; to be closed."""
        return self._ahead(self.batches(self.sets.train, start_sample=self._next))

    def evaluation_batches(self, dataset: SampleDataset, past: int) -> PrefetchedBatches[Tensor]:
        """Return micro-batches behind those of the validations up to iteration ``past``, read ahead; to be closed."""
        cfg = self._cfg
        start = valid_start_batch(
            past,
            eval_interval=cfg.eval_interval,
            eval_iters=cfg.eval_iters,
            gradient_accumulation_steps=cfg.gradient_accumulation_steps,
        )
        return self._ahead(self.batches(dataset, start))

    def batches_again(self, back: int) -> list[npt.NDArray[np.int64]]:
        """Return this rank's micro-batches of the iteration that lies ``back`` before the next one, 1 for the last."""
        place = (self._next - back * self._cfg.train_batch_size) % self._pass
        again = self.batches(self.sets.train, start_sample=place)
        return list(itertools.islice(again, self._cfg.gradient_accumulation_steps))

    def batches(self, dataset: SampleDataset | None, start_batch: int = 0, **where: int) -> MicroBatches:
        """Return this rank's micro-batches of a split, from batch ``start_batch`` or sample ``start_sample`` on."""
        if dataset is None:
            raise ValueError("this split has no data")
        return MicroBatches(
            dataset,
            self._cfg.train_micro_batch_size_per_gpu,
            self._topology.data_rank,
            self._topology.data_size,
            start_batch,
            vocab_size=self._vocab_size,
            **where,
        )

    def _ahead(self, batches: MicroBatches) -> PrefetchedBatches[Tensor]:
        """Return batches that a thread reads ahead, in memory that the device copies from by itself; to be closed."""
        return PrefetchedBatches(batches, lambda batch: pinned(batch, self._device))

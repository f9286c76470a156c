"""Micro-batches of one data-parallel rank, in GPT-NeoX's order and from any position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from neoxlite.data.gpt_dataset import SampleDataset
from neoxlite.data.prefetch import Prefetched
from neoxlite.errors import DataError

T = TypeVar("T")


class MicroBatches(Iterator[npt.NDArray[np.int64]]):
    """Endless iterator of micro-batches, int64 [micro_batch_size, seq_length + 1].

    Batch b of all ranks together is samples b * micro * dp to (b + 1) * micro * dp - 1; rank r takes the r-th run of
    ``micro`` of them (megatron/data/samplers.py at ea7aefd8). An optimiser step reads as many batches as there are
    accumulation steps, so that for one global batch size a step sees the same samples under any (micro, accumulation,
    dp). Behind the last whole batch it starts again at batch 0; upstream starts again where the run was resumed, which
    would make a resumed run differ from an unbroken one.

    Args:
        dataset: numbered samples.
        micro_batch_size: samples a batch has on one rank.
        dp_rank: this process's data-parallel rank.
        dp_size: data-parallel ranks.
        start_batch: batches already consumed, counted from the beginning of training (not modulo the data).
        start_sample: samples already consumed by all ranks, in place of ``start_batch``. They need not be whole
            batches, so that a run goes on at the same sample with another batch size; one batch may then cross the end
            of a pass.
        vocab_size: if given, tokens outside 0 to vocab_size - 1 are refused, which an embedding could not name.

    Attributes:
        consumed_samples: samples consumed by all ranks, counted as ``start_sample`` is. Saving and passing it on
            resumes exactly.
        batches: whole batches in one pass over the dataset.

    Raises:
        DataError: the dataset has fewer samples than one batch of all ranks.
    """

    def __init__(
        self,
        dataset: SampleDataset,
        micro_batch_size: int,
        dp_rank: int = 0,
        dp_size: int = 1,
        start_batch: int = 0,
        *,
        start_sample: int | None = None,
        vocab_size: int | None = None,
    ) -> None:
        if micro_batch_size < 1 or not 0 <= dp_rank < dp_size or start_batch < 0 or (start_sample or 0) < 0:
            raise ValueError(f"micro-batch {micro_batch_size}, rank {dp_rank} of {dp_size}, start {start_batch}")
        self.batches = len(dataset) // (micro_batch_size * dp_size)
        if self.batches == 0:
            raise DataError(
                f"the dataset has {len(dataset)} samples, fewer than one batch of "
                f"{micro_batch_size} x {dp_size} (micro-batch x data-parallel size)",
                hint="give more text, a smaller seq_length, or a larger share of split",
            )
        self._dataset = dataset
        self._micro_batch_size = micro_batch_size
        self._stride = micro_batch_size * dp_size
        self._offset = micro_batch_size * dp_rank
        self._vocab_size = vocab_size
        self.consumed_samples = start_batch * self._stride if start_sample is None else start_sample

    @property
    def position(self) -> int:
        """Number of the next batch, counted as ``start_batch`` is."""
        return self.consumed_samples // self._stride

    def __next__(self) -> npt.NDArray[np.int64]:
        """Return the next micro-batch. Raises DataError for a token outside the vocabulary."""
        first, samples = self.consumed_samples + self._offset, self.batches * self._stride
        batch = np.stack([self._dataset[number % samples] for number in range(first, first + self._micro_batch_size)])
        if self._vocab_size is not None and not 0 <= batch.min() <= batch.max() < self._vocab_size:
            raise DataError(
                f"batch {self.position} holds the tokens {batch.min()} to {batch.max()}, "
                f"but the vocabulary has {self._vocab_size}",
                hint="the dataset was made with another tokenizer; set the tokenizer of the dataset",
            )
        self.consumed_samples += self._stride
        return batch


class PrefetchedBatches(Iterator[T], Generic[T]):
    """Micro-batches that a thread reads, and prepares for the device, ahead of their use.

    A context manager: leaving it ends the thread.

    Args:
        batches: where they come from; not to be used by anyone else meanwhile, as it is ahead.
        prepare: applied to each batch in the thread: to make it a tensor, say, as `neoxlite.data.pinned.pinned` does.
        depth: batches held ready.

    Attributes:
        consumed_samples: as that of ``batches``, but of what was handed out, not of what was read ahead.
    """

    def __init__(self, batches: MicroBatches, prepare: Callable[[npt.NDArray[np.int64]], T], *, depth: int = 2) -> None:
        self.consumed_samples = batches.consumed_samples
        self._waited_s = 0.0
        self._ahead: Prefetched[tuple[T, int]] = Prefetched(
            ((prepare(batch), batches.consumed_samples) for batch in batches), depth
        )

    def __next__(self) -> T:
        """Return the next batch, waiting for it. Raises what reading or preparing it raises."""
        batch, self.consumed_samples = next(self._ahead)
        return batch

    def take_wait_s(self) -> float:
        """Return the seconds spent waiting for batches since the last call."""
        waited = self._ahead.wait_s - self._waited_s
        self._waited_s = self._ahead.wait_s
        return waited

    def close(self) -> None:
        """End the thread."""
        self._ahead.close()

    def __enter__(self) -> PrefetchedBatches[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def valid_start_batch(iteration: int, *, eval_interval: int, eval_iters: int, gradient_accumulation_steps: int) -> int:
    """Return the validation micro-batches consumed when ``iteration`` iterations are done.

    One validation reads ``eval_iters`` global batches. (Upstream multiplies the iteration, not the batches, by the
    accumulation steps: equal for 1 only.)
    """
    return iteration // eval_interval * eval_iters * gradient_accumulation_steps

"""DeepSpeed's pipeline engine behind the operations of `Engine`.

Three rules more than there (DeepSpeed 0.19.8):

* ZeRO stage 1 always: without it the gradient norm misses all stages but the first. Stages 2 and 3 it refuses. The
  configuration sees to both.
* The direct optimizer is told of each backward pass here: DeepSpeed tells the last stage's only. Its sums are elsewhere
  than DeepSpeed expects the gradients of tied weights.
* The schedule is 1F1B: on a stage the forward passes of an iteration's micro-batches come in their order, with backward
  passes between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.model.pipeline import PipelineStage
from neoxlite.parallel.topology import Topology
from neoxlite.training.engine import Batch, Engine, Step
from neoxlite.training.phases import BACKWARD, COMMUNICATION, FORWARD, OPTIMIZER
from neoxlite.training.rng import seed_micro_batch
from neoxlite.training.stop import StopSignal

# What each instruction of the schedule counts for; a wait for a neighbour stage is communication.
_PHASES = {
    "ForwardPass": FORWARD,
    "BackwardPass": BACKWARD,
    "OptimizerStep": OPTIMIZER,
    **dict.fromkeys(
        ("SendActivation", "RecvActivation", "SendGrad", "RecvGrad", "ReduceGrads", "ReduceTiedGrads"), COMMUNICATION
    ),
}
# Filling and draining the pipeline costs the time of as many micro-batches as it has stages.
_MICRO_BATCHES_BETWEEN_STOPS = 8


class PipelineEngine(Engine):
    """One stage of a model, its optimizer and the machinery between stages and replicas."""

    module: PipelineStage

    def __init__(self, cfg: Any, model: PipelineStage, topology: Topology, device: torch.device, eod: int | None):
        super().__init__(cfg, model, topology, device, eod)
        self._unclocked = False
        self.deepspeed._INSTRUCTION_MAP = {
            kind: self._observed(kind.__name__, run) for kind, run in self.deepspeed._INSTRUCTION_MAP.items()
        }

    def _observed(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        """Return an instruction of the schedule that phases and clock know of."""
        phase = _PHASES.get(name)
        if phase is None:
            return run

        if self.direct and name == "ReduceTiedGrads":
            run = _reduce_tied_sums

        def observed(engine: Any, **keywords: Any) -> None:
            if name == "ForwardPass" and self.module.fused_head_loss and engine.is_last_stage():
                self.module.labels = engine.pipe_buffers["labels"][keywords["buffer_id"]]
            clocked = self._unclocked and phase == FORWARD
            self._unclocked &= not clocked
            with self.phases(phase), self.clock if clocked else contextlib.nullcontext():
                run(engine, **keywords)
                if self.direct and name == "BackwardPass":
                    engine.optimizer.backward_epilogue()

        return observed

    def train_step(self, batches: Iterable[Batch], iteration: int) -> Step:
        """Run the micro-batches through the pipeline and take one step; only the end stages read ``batches``."""
        passes = 0

        def seed() -> None:
            nonlocal passes
            seed_micro_batch(self._seed, iteration, self._first_sample(passes))
            passes += 1

        self.module.before_micro_batch = seed
        self._unclocked = True
        self.deepspeed.train_batch(self._pairs(batches))
        self.module.before_micro_batch = None
        norm, skipped = self.deepspeed.get_global_grad_norm(), not self.deepspeed.was_step_applied()
        return Step(self.deepspeed.dp_group_loss, norm, skipped, self._settled_scale())

    def mean_loss(self, batches: Iterator[Batch], count: int, stop: StopSignal | None = None) -> Tensor | None:
        """Return the mean loss as `Engine.mean_loss` does, looking at ``stop`` each time the pipeline has drained.

        The losses of all parts are reduced at the end, as DeepSpeed reduces those of one `eval_batch`.
        """
        losses: list[Tensor] = []
        pairs, part = self._pairs(batches), _MICRO_BATCHES_BETWEEN_STOPS * self.topology.pipeline_size
        for first in range(0, count, part):
            if stop is not None:
                stop.post()
            number = min(part, count - first)
            # Only the last stage has losses; on the others DeepSpeed returns nothing.
            found = self.deepspeed.eval_batch(pairs, num_micro_batches=number, reduce_output=None, bcast_loss=False)
            losses += found or []
            self.module.train()
            if stop is not None and stop.read():
                return None
        mean = self.deepspeed._reduce_outputs(losses, micro_batches=count) if losses else None
        loss: Tensor = self.deepspeed._bcast_pipe_scalar(mean)
        return loss

    def replay(self, batches: Iterable[Batch], iteration: int) -> None:
        """Run the forward passes of an iteration again, with dropout off; DeepSpeed has no backward without a step."""
        pairs = self._pairs(batches)
        self.deepspeed.eval_batch(pairs, num_micro_batches=self.accumulation, reduce_output=None, bcast_loss=False)
        self.module.train()

    def _pairs(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Any]]:
        """Yield (what the first stage reads, what the last stage reads)."""
        for batch in batches:
            tokens, labels, mask = self.inputs(batch)
            yield tokens, labels if mask is None else (labels, mask)

    def _mpu(self) -> Topology | None:
        return None  # PipelineModule brings its own


def _reduce_tied_sums(engine: Any) -> None:
    """Sum the gradients of tied weights over their stages."""
    for weight, group in engine.module.get_tied_weights_and_groups():
        gradient = engine.optimizer.gradient_of(weight)
        if gradient is not None:
            dist.all_reduce(gradient, group=group)

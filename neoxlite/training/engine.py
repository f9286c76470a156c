"""DeepSpeed's engine behind the few operations that the loop needs, with the rules that make it exact.

The rules, each found by comparison with plain torch (DeepSpeed 0.19.8):

* fp16 and bf16 need ZeRO stage 1: without ZeRO the optimizer begins with a step of zero gradients. The configuration
  raises the stage; this module refuses what would still get through.
* The norm of an fp32 run without ZeRO is not reported by DeepSpeed; it is computed, and the clipping done, here.
* bf16 accumulates gradients in fp32 unless data_types.grad_accum_dtype asks otherwise; fp16 in fp16, as in GPT-NeoX.
* The loss scale of fp16 is `neoxlite.optim.loss_scale`: DeepSpeed's own halves the gradient of a step that doubles it.
* The optimizer of CPU offload is torch's fused AdamW: DeepSpeed's own has to be compiled before it can run.
* DeepSpeed's own ZeRO stage 1 is slow on GPUs: `neoxlite.optim.direct_zero` takes its place there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

from neoxlite.config.partition import COUNTING
from neoxlite.errors import ConfigError
from neoxlite.optim.build import build_optimizer, uses_direct_zero
from neoxlite.optim.loss_scale import LossScale
from neoxlite.parallel.collectives import sum_gradients_of_parts
from neoxlite.parallel.distributed import quiet_stdout
from neoxlite.parallel.slicing import slicing_of
from neoxlite.parallel.topology import Topology
from neoxlite.training.deepspeed_config import accumulation_dtype, deepspeed_config
from neoxlite.training.evaluation import mean_over_replicas
from neoxlite.training.phases import BACKWARD, FORWARD, OPTIMIZER, Phases
from neoxlite.training.rng import seed_micro_batch
from neoxlite.training.stages import stage_bounds
from neoxlite.training.stop import StopSignal
from neoxlite.training.stragglers import ForwardClock

Batch = Tensor | npt.NDArray[np.int64]
"""Tokens of a micro-batch, int64 [micro, seq_length + 1], on the host."""

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Step:
    """One optimizer step; the tensors stay on the device, so that reading them can wait."""

    loss: Tensor
    """Mean over this rank's micro-batches, fp32 scalar."""
    grad_norm: Tensor | float
    """Global L2 norm of the accumulated gradient, before clipping."""
    skipped: bool
    """Whether the step was left out because the norm is not finite."""
    loss_scale: float | None = None
    """In fp16: the scale after the step."""


class Engine:
    """A model, its optimizer and the data-parallel machinery around them."""

    def __init__(self, cfg: Any, model: nn.Module, topology: Topology, device: torch.device, eod: int | None):
        import deepspeed

        check_supported(cfg, device)
        self.device = device
        self.topology = topology
        self.accumulation = cfg.gradient_accumulation_steps
        self.zero_stage = cfg.zero_stage
        self.module_dtype = model_dtype(cfg.precision)
        self._clip = cfg.gradient_clipping
        self._seed = cfg.seed
        self._micro: int = cfg.train_micro_batch_size_per_gpu
        self._eod = eod if cfg.eod_mask_loss else None
        model = model.to(device)
        self.direct, note = uses_direct_zero(cfg, device)
        """Whether `neoxlite.optim.direct_zero` takes the steps."""
        fused = cfg.offload is not None or (device.type == "cuda" and not self.direct)
        self.notes = [note] if note else []
        """Lines for the user about what this engine does without."""
        with quiet_stdout(), _direct_zero(cfg) if self.direct else contextlib.nullcontext():
            self.deepspeed, *_ = deepspeed.initialize(
                model=model,
                optimizer=build_optimizer(cfg, model, fused=fused),
                config=deepspeed_config(cfg, direct=self.direct),
                mpu=self._mpu(),
                dist_init_required=False,
            )
        self.module: nn.Module = self.deepspeed.module
        sum_gradients_of_parts(self.module, topology)
        self.loss_scale: LossScale | None = None
        """In fp16 only."""
        if cfg.precision == "fp16":
            self.loss_scale = self.optimizer.loss_scaler = LossScale.from_block(cfg.fp16 or {})
        self.phases = Phases()
        """Measures the phases of a step; without effect unless replaced by one that does."""
        self.clock = ForwardClock(device)
        """Measures the forward pass of each step's first micro-batch."""

    def _mpu(self) -> Topology | None:
        """Return what tells DeepSpeed of tensor parallelism, if there is any."""
        return self.topology if self.topology.tensor_size > 1 else None

    @property
    def optimizer(self) -> Any:
        """DeepSpeed's optimizer: a ZeRO wrapper, or torch's AdamW itself without ZeRO."""
        return self.deepspeed.optimizer

    def set_lr(self, lr: float) -> None:
        """Set the rate of the next step in all groups."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def train_step(self, batches: Iterable[Batch], iteration: int) -> Step:
        """Accumulate the gradient of the micro-batches (int64 [micro, seq_length + 1] each) and take one step.

        Args:
            iteration: counted from 1; with the seed it decides what dropout drops.
        """
        losses: list[Tensor] = []
        for batch in batches:
            seed_micro_batch(self._seed, iteration, self._first_sample(len(losses)))
            with self.phases(FORWARD), self.clock if not losses else contextlib.nullcontext():
                loss = self.deepspeed(*self.inputs(batch))
            with self.phases(BACKWARD):
                self.deepspeed.backward(loss)
            losses.append(loss.detach())
            with self.phases(OPTIMIZER):
                if len(losses) == self.accumulation and self.zero_stage == 0:
                    norm, skipped = self._clip_gradients()
                self.deepspeed.step()
        if self.zero_stage > 0:
            norm = self.deepspeed.get_global_grad_norm()
            skipped = not self.deepspeed.was_step_applied()
        return Step(torch.stack(losses).float().mean(), norm, skipped, self._settled_scale())

    def mean_loss(self, batches: Iterator[Batch], count: int, stop: StopSignal | None = None) -> Tensor | None:
        """Return the mean loss (fp32 scalar) over ``count`` micro-batches of every replica, with dropout off.

        With a ``stop`` that the ranks agree on in between, return None.
        """
        self.deepspeed.eval()
        losses: list[Tensor] = []
        try:
            with torch.no_grad():
                for batch in itertools.islice(batches, count):
                    if stop is not None:
                        stop.post()
                    losses.append(self._forward(batch).float())
                    if stop is not None and stop.read():
                        return None
        finally:
            self.deepspeed.train()
        return mean_over_replicas(torch.stack(losses).mean(), self.topology)

    def replay(self, batches: Iterable[Batch], iteration: int) -> None:
        """Run forward and backward of an iteration again, for those who look on by hooks; keeps nothing, steps nothing.

        Under ZeRO stage 3 forward only, for DeepSpeed reduces gradients where they arise.
        """
        for number, batch in enumerate(batches):
            seed_micro_batch(self._seed, iteration, self._first_sample(number))
            with torch.set_grad_enabled(self.zero_stage < 3):
                loss = self._forward(batch)
            if self.zero_stage < 3:
                # Not by backward(), which would add to what DeepSpeed accumulates.
                torch.autograd.grad(loss, list(self.module.parameters()), allow_unused=True)

    def _forward(self, batch: Batch) -> Tensor:
        # Stage 3 gathers parameters in hooks that its engine prepares.
        module = self.deepspeed if self.zero_stage == 3 else self.module
        loss: Tensor = module(*self.inputs(batch))
        return loss

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return tokens, labels and loss mask of a micro-batch, on the device."""
        return model_inputs(batch, self.device, self._eod)

    def _first_sample(self, micro_batch: int) -> int:
        """Return the number, in the iteration's batch, of the first sample of this replica's ``micro_batch``."""
        return (micro_batch * self.topology.data_size + self.topology.data_rank) * self._micro

    def _settled_scale(self) -> float | None:
        """Let the loss scale follow the step that was taken, and return it. Raises LossScaleError at its least."""
        if self.loss_scale is None:
            return None
        self.loss_scale.settle()
        return self.loss_scale.scale

    def _clip_gradients(self) -> tuple[Tensor, bool]:
        """Clip the reduced fp32 gradients; drop them if they are not finite, which makes the step do nothing."""
        parameters = list(self.module.parameters())
        limit = self._clip if self._clip > 0 else float("inf")
        norm = gradient_norm(parameters, self.topology)
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        skipped = not bool(torch.isfinite(norm))
        if skipped:
            for parameter in parameters:
                parameter.grad = None
        return norm, skipped


def gradient_norm(parameters: Sequence[nn.Parameter], topology: Topology) -> Tensor:
    """Return the L2 norm of the whole model's gradient; slices count on every tensor-parallel rank, the rest once."""
    group = topology.group("tensor")
    if group is None:
        return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    sliced, whole = [
        torch.nn.utils.get_total_norm(
            [p.grad for p in parameters if p.grad is not None and (slicing_of(p) is not None) is wanted]
        ).square()
        for wanted in (True, False)
    ]
    dist.all_reduce(sliced, group=group)
    return (sliced + whole).sqrt()


def model_inputs(batch: Batch, device: torch.device, eod: int | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Split int64 [micro, length + 1] into tokens and labels; with ``eod`` mask the loss behind that token."""
    tokens = torch.as_tensor(batch).to(device, non_blocking=True)  # from page-locked memory without waiting for it
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    return inputs, labels, None if eod is None else inputs != eod


def model_dtype(precision: str) -> torch.dtype:
    """Return the parameters' dtype."""
    return _DTYPES[precision]


def computes_in_fp16(device: torch.device) -> bool:
    """Tell whether a device can train in fp16: few CPUs can, and those slowly."""
    return device.type == "cuda"


def check_supported(cfg: Any, device: torch.device) -> None:
    """Raise ConfigError for parallelism and precision that the trainer does not have yet, or that cannot work."""
    if cfg.precision == "fp16" and not computes_in_fp16(device):
        off = "--set fp16.enabled=false " if cfg.fp16 else ""
        raise ConfigError(
            "fp16 trains on GPUs only, and this run has none",
            hint=f"run it on a GPU, or in another precision: {off}--set precision=bfloat16",
        )
    if cfg.pipe_partition_method.lower() not in COUNTING:  # those wait for the vocabulary
        stage_bounds(cfg)
    if cfg.zero_stage == 0 and cfg.precision != "fp32":
        raise ConfigError(
            f"{cfg.precision} needs zero_optimization.stage: 1",
            hint="without ZeRO, DeepSpeed begins such a run with an optimizer step of zero gradients",
        )


@contextlib.contextmanager
def built_in_shards(cfg: Any, topology: Topology) -> Iterator[None]:
    """Under ZeRO stage 3, spread the parameters of modules made in the block over the replicas as they are made.

    No rank then holds the whole model, not even before training.
    """
    if cfg.zero_stage < 3:
        yield
        return
    import deepspeed

    mpu = topology if topology.tensor_size > 1 else None
    replicas = topology.get_data_parallel_group() if mpu else None  # not taken from the mpu
    with (
        quiet_stdout(),
        deepspeed.zero.Init(config_dict_or_path=deepspeed_config(cfg), data_parallel_group=replicas, mpu=mpu),
    ):
        yield


def _direct_zero(cfg: Any) -> contextlib.AbstractContextManager[None]:
    from neoxlite.optim.direct_zero import direct_zero  # imports DeepSpeed

    return direct_zero(fp32_sums=accumulation_dtype(cfg) == "fp32")

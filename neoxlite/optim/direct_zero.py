"""ZeRO stage 1 without its detours: DeepSpeed's own layout, partitions and state names, its own reduction and step.

DeepSpeed's class launches thousands of small kernels a step, copies each gradient three times, takes its norm in fp64
and waits for the device several times: 15 to 25 % of a step's time at 125M to 1.3B parameters on an H200. This one lets
gradients lie where autograd left them, sums them in fp32 in one kernel where that is asked for, and takes norm,
clipping and AdamW on the device (`neoxlite.optim.adamw`). Checkpoints of one load in the other. What it does not have
(fp16, offload, experts) is left to DeepSpeed's: see `neoxlite.optim.build`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed as dist
from deepspeed.runtime.utils import is_model_parallel_parameter
from deepspeed.runtime.zero.stage_1_and_2 import INITIAL_MICRO_STEP_ID, DeepSpeedZeroOptimizer
from torch import Tensor

from neoxlite.optim.adamw import Partition, Rates, clip_coefficient, update
from neoxlite.optim.flat_group import FlatGroup, cut
from neoxlite.optim.replicas import SharedWeights, partition_sums, pieces
from neoxlite.optim.verdict import Verdict

if TYPE_CHECKING:
    from neoxlite.optim.triton_adamw import GradientTable


@contextlib.contextmanager
def direct_zero(*, fp32_sums: bool) -> Iterator[None]:
    """Have ``deepspeed.initialize`` inside the block make the direct optimizer; its gradient dtype must be bf16 there.

    Args:
        fp32_sums: sum gradients over micro-batches and replicas in fp32, else in bf16.
    """

    def build(*arguments: Any, **keywords: Any) -> DirectZeroOptimizer:
        return DirectZeroOptimizer(*arguments, fp32_sums=fp32_sums, **keywords)

    with mock.patch("deepspeed.runtime.engine.DeepSpeedZeroOptimizer", build):
        yield


class DirectZeroOptimizer(DeepSpeedZeroOptimizer):  # type: ignore[misc]
    """See the module. The arguments are DeepSpeed's, and ``fp32_sums`` of `direct_zero`."""

    def __init__(self, *arguments: Any, fp32_sums: bool, **keywords: Any):
        # Without these three the class installs no hooks and does not look at the gradients.
        keywords.update(contiguous_gradients=False, overlap_comm=False, check_grad_overflow=False)
        super().__init__(*arguments, **keywords)
        self._replicas = dist.get_world_size(self.dp_process_group)
        self._replica = dist.get_rank(self.dp_process_group)
        self._sums_fp32 = fp32_sums and self.gradient_accumulation_steps > 1
        self._summed = 0
        self._groups = [self._group(number) for number in range(len(self.bit16_groups))]
        self._verdict: Verdict | None = None
        """On the norm of the last step."""
        self._skipped: bool | None = False
        """Whether the last step was; None: not looked at yet."""

    def _group(self, number: int) -> FlatGroup:
        master = self.single_partition_of_fp32_groups[number]
        parameters: list[Tensor] = self.round_robin_bit16_groups[number]
        starts: list[int] = self.round_robin_bit16_offsets[number]
        flat = self.bit16_groups_flat[number]
        state = self.optimizer.state[master]
        # The step is on the host, where it is needed.
        state["step"] = torch.zeros((), dtype=torch.float32)
        for kind in ("exp_avg", "exp_avg_sq"):
            state[kind] = torch.zeros_like(master, requires_grad=False)
        weights = self.parallel_partitioned_bit16_groups[number][self._replica]
        counts = [self._counts(parameter) for parameter in parameters]
        ranges = [(start, p.numel()) for p, start, counted in zip(parameters, starts, counts, strict=True) if counted]
        return FlatGroup(
            parameters,
            starts,
            Partition(weights, master.detach(), state["exp_avg"], state["exp_avg_sq"]),
            flat,
            list(cut(ranges, self._replica * master.numel(), master.numel())),
            counts,
            self._table(parameters, starts) if flat.is_cuda else None,
            torch.zeros_like(flat, dtype=torch.float32) if self._sums_fp32 else None,
        )

    def _counts(self, parameter: Tensor) -> bool:
        """Whether this rank counts a parameter in the norm: what other ranks hold too is counted by the first."""
        if getattr(parameter, "ds_pipe_replicated", False):
            return False
        return bool(is_model_parallel_parameter(parameter)) or self.model_parallel_rank == 0

    @staticmethod
    def _table(parameters: Sequence[Tensor], starts: Sequence[int]) -> GradientTable:
        from neoxlite.optim.triton_adamw import GradientTable

        return GradientTable(parameters, starts)

    @torch.no_grad()
    def backward_epilogue(self, *_arguments: Any, **_keywords: Any) -> None:
        """After each micro-batch: add its gradients to the fp32 sum."""
        if self._sums_fp32 and self._groups[0].parameters[0].grad is not None:
            self._sum()

    @torch.no_grad()
    def reduce_gradients(self, pipeline_parallel: bool = False) -> None:
        """After the last micro-batch: each replica receives the sum of its partition over all of them."""
        if self._sums_fp32 and self._groups[0].parameters[0].grad is not None:
            self._sum()
        for group in self._groups:
            if group.total is not None:
                own = self._own(group.total)
                if self._replicas > 1:
                    dist.reduce_scatter_tensor(own, group.total, group=self.dp_process_group)
                group.keep(own.narrow(0, *piece) for piece in pieces(own.numel(), self.dp_process_group))
            elif self._replicas > 1:
                group.keep(partition_sums(group.lay, group.flat_weights, self.dp_process_group))
                group.free()
            elif group.table is None:
                flat = torch.empty_like(group.flat_weights)
                group.lay(flat, 0)
                group.keep([flat])
                group.free()

    def gradient_of(self, parameter: Tensor) -> Tensor | None:
        """Return a parameter's gradient from all micro-batches so far, wherever it is kept; None if it has none."""
        for group in self._groups:
            if group.total is None:
                continue
            for one, view in zip(group.parameters, group.views, strict=True):
                if one is parameter:
                    return view
        return parameter.grad

    def _sum(self) -> None:
        """Add the gradients to the groups' sums, and free them."""
        first = self._summed == 0
        for group in self._groups:
            assert group.total is not None
            if group.table is not None:
                group.table.accumulate(group.total, first=first)
            else:
                group.add(first=first)
            group.free()
        self._summed += 1

    def _own(self, flat: Tensor) -> Tensor:
        """Return this replica's partition of a flat buffer."""
        numel = flat.numel() // self._replicas
        return flat.narrow(0, self._replica * numel, numel)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Clip and step, with nothing that waits for the device; a gradient that is not finite changes nothing."""
        self.micro_step_id = INITIAL_MICRO_STEP_ID
        self._global_grad_norm = norm = self._gradient_norm()
        self._verdict, self._skipped = Verdict(norm), None
        coefficient = clip_coefficient(norm, self.clip_grad) / self._replicas
        for settings, group in zip(self.optimizer.param_groups, self._groups, strict=True):
            rates = self._rates(settings)
            if not group.own:
                assert group.table is not None
                group.table.update(group.part, coefficient, rates)
                continue
            weights = SharedWeights(group.flat_weights, self.dp_process_group)
            for piece, gradient in zip(weights.pieces(), group.own, strict=True):
                update(group.part.narrow(*piece), gradient, coefficient, rates)
            weights.wait()
            group.own, group.norms = [], []
        self._summed = 0

    def _rates(self, settings: dict[str, Any]) -> Rates:
        """Return the numbers of a group's step, and count it."""
        step = self.optimizer.state[settings["params"][0]]["step"]
        step += 1
        beta1, beta2 = settings["betas"]
        return Rates(settings["lr"], beta1, beta2, settings["eps"], settings["weight_decay"], int(step))

    def _gradient_norm(self) -> Tensor:
        """Return the L2 norm (0-dim fp32) of the whole model's mean gradient over the replicas."""
        norms: list[Tensor] = []
        for group in self._groups:
            norms += group.norms
            kept = zip(group.parameters, group.counts, strict=True)
            gradients = [p.grad for p, counted in kept if counted and p.grad is not None]
            if not group.own and gradients:
                norms += torch._foreach_norm(gradients, 2, dtype=torch.float32)
        device = self._groups[0].part.master.device
        square = torch.zeros((), dtype=torch.float32, device=device)
        if norms:
            square = torch.stack(norms).square().sum()
        if self._replicas > 1:
            dist.all_reduce(square, group=self.dp_process_group)
        self._model_parallel_all_reduce(tensor=square, op=dist.ReduceOp.SUM)
        return square.sqrt() / self._replicas

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped on the device; it then does not count, as with DeepSpeed's.

        Reading it waits for the norm, not for the step. DeepSpeed's engine does so after each.
        """
        if self._skipped is None:
            assert self._verdict is not None
            self._skipped = not self._verdict.finite()
            if self._skipped:
                for settings in self.optimizer.param_groups:
                    self.optimizer.state[settings["params"][0]]["step"] -= 1
        return self._skipped

    @overflow.setter
    def overflow(self, value: bool) -> None:
        """DeepSpeed's constructor sets it; the norm decides."""

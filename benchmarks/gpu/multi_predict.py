"""What a step on several GPUs should cost, by arithmetic from one GPU's step: the other column of multi.py's tables.

Bytes a parameter and an activation as in the planning formulas of Megatron-LM (arXiv 2205.05198) and ZeRO (arXiv
1910.02054), for this trainer's engines; flash attention, no dropout, no recomputation.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from neoxlite.config.partition import cut_balanced
from neoxlite.optim.replicas import PIECE

NVLINK_BYTES_PER_S = 0.8 * 450e9
"""Bus bandwidth to expect of H100 and H200 without NVLink SHARP: 80 % of what the links are made for, each way."""
_ALL_REDUCE = {2**20: 16e9, 2**24: 185e9, 2**26: 238e9, 2**29: 310e9, 2**30: 325e9, 2**32: 347e9}
_ALL_GATHER = {2**20: 10e9, 2**24: 124e9, 2**26: 190e9, 2**29: 248e9, 2**30: 263e9, 2**32: 286e9}
"""Bytes of a message -> bus bandwidth on two H200 (docs/multi-gpu.md)."""
MEMORY_BYTES_PER_S = 3.7e12
"""What a fused AdamW reaches of an H200's memory."""
_STEPPED = 30
"""Bytes a parameter of norm and AdamW on one GPU."""
_KEPT, _KEPT_WHOLE = 36, 8
"""Bytes of an activation between two layers that the backward pass needs of a layer, and what slices keep whole.

34 in the formula of Megatron-LM without the two masks of dropout, and queries and keys behind their rotation.
"""
_BETWEEN = 0.028
"""Share of a step for norms and sums between the matrices, which each slice computes whole (docs/multi-gpu.md)."""


@dataclass(frozen=True)
class Shape:
    """A GPT-NeoX model with rotary positions and an untied head, and the batch of one micro-step."""

    layers: int
    hidden: int
    vocabulary: int
    sequence: int
    micro_batch: int

    @property
    def layer_parameters(self) -> int:
        """Parameters of a layer."""
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self.layers * self.layer_parameters + 2 * self.hidden + 2 * self.vocabulary * self.hidden

    @property
    def blocks_of_stages(self) -> tuple[int, int]:
        """Blocks of the first and of the last of two stages of equal work (pipe_partition_method: flops)."""
        block, head = self.layer_flops, 2 * self.vocabulary * self.hidden
        first = cut_balanced([0, 0, *[block] * self.layers, 0, head, 0], 2)[1] - 2
        return first, self.layers - first

    @property
    def layer_flops(self) -> int:
        """Multiplications and additions of a token's forward pass in a layer, half of the attention."""
        return 2 * self.layer_parameters + 2 * self.sequence * self.hidden

    @property
    def boundary_bytes(self) -> int:
        """Bytes of the bf16 activations between two layers."""
        return 2 * self.sequence * self.micro_batch * self.hidden


def peak_gib(shape: Shape, *, engine: str, data: int = 1, tensor: int = 1, stages: int = 1, steps: int = 1) -> float:
    """Return the largest sum of tensors on a rank (first pipeline stage) in GiB: when a backward pass begins.

    There are no gradients then, but for sums over micro-steps.

    Args:
        engine: ``direct``, ``deepspeed`` (BF16_Optimizer: fp32 sums of all gradients), or ``ddp``.
        steps: micro-steps of a step.
    """
    layers = shape.layers / stages
    if stages == 2:
        layers = shape.blocks_of_stages[0]
    parameters = shape.parameters / tensor
    if stages > 1:
        parameters = layers * shape.layer_parameters + shape.vocabulary * shape.hidden
    per_parameter: float = 2
    if engine == "ddp":
        per_parameter += 4 + 12  # an fp32 copy of the gradients, and all states on each rank
        per_parameter += 2 if data > 1 else 0  # buckets
    else:
        per_parameter += 12 / data
        if engine == "deepspeed" or steps > 1:
            per_parameter += 4
    sbh = shape.boundary_bytes / 2
    kept = _KEPT_WHOLE + (_KEPT - _KEPT_WHOLE) / tensor
    in_flight = min(stages, steps)
    activations = kept * sbh * layers * in_flight
    logits = 0.0
    if stages == 1:
        tokens = shape.sequence * shape.micro_batch
        logits = tokens * shape.vocabulary / tensor * 2
    return (per_parameter * parameters + activations + logits) / 2**30


def step_ms(
    shape: Shape, one_ms: float, *, engine: str, data: int = 1, tensor: int = 1, stages: int = 1, steps: int = 1
) -> float:
    """Return a step's milliseconds from one GPU's step of one micro-batch.

    Args:
        one_ms: a step of one GPU with the same micro-batch and the direct optimizer, in milliseconds.
    """
    stepped = _of_memory(_STEPPED * shape.parameters)
    computed = one_ms - stepped
    if stages > 1:
        return _pipeline_ms(shape, computed, stepped, stages, steps)
    if tensor > 1:
        whole = _BETWEEN * one_ms
        # Forward the sums of two products a layer; backward they travel beside the weights' products.
        travelled = 2 * shape.layers * 2 * (tensor - 1) / tensor * shape.boundary_bytes
        return (computed - whole + stepped) / tensor + whole + travelled / bus(shape.boundary_bytes) * 1000
    if data > 1 and engine == "ddp":
        return one_ms  # its all-reduce of bf16 gradients hides behind the backward pass
    if data > 1:
        sent = (data - 1) / data * 2 * shape.parameters / NVLINK_BYTES_PER_S * 1000  # bf16, each way
        if engine == "direct":
            return computed + _replicas_ms(shape.parameters / data, data)
        # BF16_Optimizer sends sums in fp32, and its weights after all of them are stepped.
        return one_ms + 3 * sent
    return one_ms * steps


def _replicas_ms(part: float, data: int) -> float:
    """Return the milliseconds of the direct optimizer behind a backward pass, for partitions of ``part`` parameters.

    bf16 gradients are laid flat while those before them travel, added and measured; weights stepped while those before
    them travel. Nothing hides a first and a last piece.
    """
    piece = min(PIECE, part)
    sent = 2 * (data - 1) * part / bus(2 * data * piece, _ALL_GATHER) * 1000
    added = _of_memory(4 * part * data) + _of_memory((2 * data + 4 + 4) * part)
    stepped = _of_memory(_STEPPED * part)
    return sum(max(sent, worked) + piece / part * min(sent, worked) for worked in (added, stepped))


def _pipeline_ms(shape: Shape, computed: float, stepped: float, stages: int, steps: int) -> float:
    """Return the milliseconds of a 1F1B schedule: the slowest stage's, and the others' first and last."""
    block, head = shape.layer_flops, 2 * shape.vocabulary * shape.hidden
    work = shape.layers * block + head
    slowest = work / stages
    if stages == 2:
        first, last = shape.blocks_of_stages
        slowest = max(first * block, last * block + head)
    added = _of_memory(10 * shape.parameters / stages)  # of each micro-step's gradients to fp32 sums
    sent = 2 * shape.boundary_bytes / bus(shape.boundary_bytes) * 1000  # activations and their gradients, in turn
    slot = computed * slowest / work + added + sent
    return slot * steps + (computed / stages + added) * (stages - 1) + stepped / stages


def _of_memory(size: float) -> float:
    """Return the milliseconds that so many bytes take of a GPU's memory."""
    return size / MEMORY_BYTES_PER_S * 1000


def bus(size: float, measured: Mapping[int, float] = _ALL_REDUCE) -> float:
    """Return the bus bandwidth (bytes/s) of a message, between the sizes that were measured."""
    sizes = list(measured)
    at = min(max(bisect.bisect(sizes, size), 1), len(sizes) - 1)
    low, high = sizes[at - 1], sizes[at]
    share = min(max((size - low) / (high - low), 0.0), 1.0)
    return measured[low] + share * (measured[high] - measured[low])

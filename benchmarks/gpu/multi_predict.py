"""What a step on several GPUs should cost, by arithmetic from one GPU's step: the other column of multi.py's tables.

Bytes a parameter and an activation as in the planning formulas of Megatron-LM (arXiv 2205.05198) and ZeRO (arXiv
1910.02054), for this trainer's engines; flash attention, no dropout, no recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass

NVLINK_BYTES_PER_S = 0.8 * 450e9
"""Bus bandwidth to expect of H100 and H200 without NVLink SHARP: 80 % of what the links are made for, each way."""
MEMORY_BYTES_PER_S = 3.7e12
"""What a fused AdamW reaches of an H200's memory."""


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
    def boundary_bytes(self) -> int:
        """Bytes of the bf16 activations between two layers."""
        return 2 * self.sequence * self.micro_batch * self.hidden


def peak_gib(shape: Shape, *, engine: str, data: int = 1, tensor: int = 1, stages: int = 1, steps: int = 1) -> float:
    """Return the largest sum of tensors on a rank (first pipeline stage) in GiB.

    Args:
        engine: ``direct``, ``deepspeed`` (BF16_Optimizer: fp32 sums of all gradients), or ``ddp``.
        steps: micro-steps of a step.
    """
    if stages > 1:
        parameters = shape.layers / stages * shape.layer_parameters + shape.vocabulary * shape.hidden
    else:
        parameters = shape.parameters / tensor
    per_parameter: float = 2 + 2
    if engine == "ddp":
        per_parameter += 4 + 12  # an fp32 copy of the gradients, and all states on each rank
        per_parameter += 2 if data > 1 else 0  # buckets
    else:
        per_parameter += 12 / data
        if engine == "deepspeed" or steps > 1:
            per_parameter += 4
    sbh = shape.boundary_bytes / 2
    kept = 32 if tensor == 1 else 8 + 24 / tensor  # 34 without the two masks of dropout
    in_flight = min(stages, steps)
    activations = kept * sbh * shape.layers / stages * in_flight
    logits = 0.0
    if stages == 1:
        tokens = shape.sequence * shape.micro_batch
        logits = tokens * shape.vocabulary / tensor * (2 if tensor == 1 else 2 + 4)
    return (per_parameter * parameters + activations + logits) / 2**30


def step_ms(
    shape: Shape,
    one_ms: float,
    *,
    engine: str,
    data: int = 1,
    tensor: int = 1,
    stages: int = 1,
    steps: int = 1,
    bus: float = NVLINK_BYTES_PER_S,
) -> float:
    """Return a step's milliseconds from one GPU's step of one micro-batch.

    Args:
        one_ms: a step of one GPU with the same micro-batch, in milliseconds.
        bus: bytes a second of a ring between the GPUs, each way.
    """
    total = shape.parameters
    if stages > 1:
        # The bubble, the stage that has the head, and what travels between stages.
        head = 6 * shape.vocabulary * shape.hidden
        layer = 6 * shape.layer_parameters + 6 * shape.sequence * shape.hidden
        balance = (shape.layers / stages * layer + head) / ((shape.layers * layer + head) / stages)
        return one_ms / stages * balance * (steps + stages - 1)
    if tensor > 1:
        travelled = 4 * shape.layers * shape.boundary_bytes * 2 * (tensor - 1) / tensor
        return one_ms / tensor + travelled / bus * 1000
    if data > 1 and engine == "ddp":
        return one_ms  # its all-reduce of bf16 gradients hides behind the backward pass
    if data > 1:
        sent = (data - 1) / data * 2 * total / bus  # gradients and weights, in bf16 each way
        if engine == "direct":
            # Gradients are laid flat and added in fp32; the update is shared, and weights travel while it runs.
            update = (4 + 26) * total / data / MEMORY_BYTES_PER_S
            moved = (4 + 2 + 4 / data) * total / MEMORY_BYTES_PER_S - 28 * total / MEMORY_BYTES_PER_S
            return one_ms + (moved + sent + max(update, sent)) * 1000
        # BF16_Optimizer sends sums in fp32, and its weights after all of them are stepped.
        return one_ms + 3 * sent * 1000
    return one_ms * steps

"""Numeric precision and ZeRO stage, as the engine will use them.

Precision follows GPT-NeoX (megatron/neox_arguments/arguments.py, ``calculate_derived``). The stage follows what
DeepSpeed 0.19 computes correctly: without ZeRO its fp16/bf16 optimizers take one step too many, and with pipeline
stages its gradient norm counts the first stage only; ZeRO 2 and 3 cannot be combined with a pipeline.
"""

from __future__ import annotations

from typing import Any, Literal

from neoxlite.errors import ConfigError

Precision = Literal["fp32", "fp16", "bfloat16"]


def resolve_precision(
    precision: Precision | None, fp16: dict[str, Any] | None, bf16: dict[str, Any] | None
) -> Precision:
    """Return the precision from the key of that name and the two blocks.

    Raises:
        ConfigError: they contradict each other, or a block has no ``enabled``.
    """
    asked: dict[str, Precision] = {}
    for name, block, meaning in (("fp16", fp16, "fp16"), ("bf16", bf16, "bfloat16")):
        if block is None:
            continue
        if block.get("enabled") is None:
            raise ConfigError(
                f"{name}: the block has no enabled: true or false", hint=f"write {name}: {{enabled: true}}"
            )
        if block["enabled"]:
            asked[name] = "fp16" if meaning == "fp16" else "bfloat16"
    if len(asked) == 2:
        raise ConfigError("fp16 and bf16 are both enabled", hint="enable one of the two")
    if not asked:
        return precision or "fp32"
    name, result = next(iter(asked.items()))
    if precision not in (None, result):
        raise ConfigError(
            f"precision is {precision}, but the {name} block is enabled", hint=f"remove one, or set precision: {result}"
        )
    return result


def resolve_zero_stage(stage: int, precision: Precision, pipe: int) -> tuple[int, str | None]:
    """Return the stage to use, and why it was raised (None if it was not).

    Args:
        stage: the value of ``zero_optimization.stage``, 0 to 3.
        pipe: number of pipeline stages, at least 1.

    Raises:
        ConfigError: 2 or 3 with a pipeline.
    """
    if pipe > 1 and stage >= 2:
        raise ConfigError(
            f"ZeRO stage {stage} cannot be combined with pipe_parallel_size {pipe}",
            hint="the nearest that works: zero_optimization.stage: 1 with the pipeline, or pipe_parallel_size: 1",
        )
    if stage == 0 and pipe > 1:
        return 1, f"with pipe_parallel_size {pipe}, stage 0 clips by the norm of the first stage's gradients only"
    if stage == 0 and precision != "fp32":
        return 1, f"in {precision}, stage 0 begins with an optimizer step of zero gradients"
    return stage, None

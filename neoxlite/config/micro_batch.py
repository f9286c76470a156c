"""Which micro-batch a GPU's memory has room for, by arithmetic. Imports no torch.

Bytes of one GPU, in bf16 with ZeRO stage 1: 2 a parameter for weights and 12, shared by the replicas, for fp32 master
weights and moments; 4 for fp32 sums of gradients where micro-batches are accumulated; of what the backward pass needs,
36 h a token and block where blocks are compiled and attention is fused (residual stream, norms, q, k, v, both sides of
the MLP's activation), or 2 h with recomputation; and the logits of all tokens. The bf16 gradients, 2 a parameter, take
the place of the activations as these are used up. On an H200 it is up to 3 % below the peak at 125M to 6.7B
(docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig

GIB = 2**30
_BLOCK_BYTES, _RECOMPUTED_BYTES = 36, 2
"""Of a token and block, in hidden sizes."""
_WEIGHT_BYTES, _GRADIENT_BYTES, _SUM_BYTES, _STATE_BYTES = 2, 2, 4, 12
_LOGIT_BYTES = 2
_ENOUGH_TOKENS = 32768
"""Of a micro-batch: with more, the products are hardly faster on an H200."""
_FEW_TOKENS = 16384
_FILLED = 0.85
"""Share of the memory that may be planned with; the rest is for fragments, buffers of NCCL, and what is not counted."""


def memory_gib(cfg: NeoxConfig, padded_vocab_size: int, micro_batch: int, *, recompute: bool) -> float:
    """Return about how much memory a GPU needs for the whole model of a configuration in bf16 with ZeRO stage 1."""
    tokens = micro_batch * cfg.seq_length
    parameters = cfg.parameter_count(padded_vocab_size)
    in_fp32 = (cfg.data_types or {}).get("grad_accum_dtype") == "fp32"  # `load_config` writes what is not said
    sums = _SUM_BYTES if in_fp32 and cfg.gradient_accumulation_steps > 1 else 0
    states = parameters * (_WEIGHT_BYTES + sums + _STATE_BYTES / max(1, cfg.data_parallel_size))
    block = _BLOCK_BYTES * cfg.hidden_size
    activations = (
        cfg.num_layers * (_RECOMPUTED_BYTES * cfg.hidden_size) + block if recompute else cfg.num_layers * block
    )
    logits = padded_vocab_size * _LOGIT_BYTES
    return (states + max(tokens * (activations + logits), parameters * _GRADIENT_BYTES)) / GIB


COUNTED = "bf16 with ZeRO stage 1, without pipeline, tensor parallelism, offload and selective recomputation"
"""What `advice` can say something of."""


def least_gib(cfg: NeoxConfig, padded_vocab_size: int) -> float:
    """Return the memory of a GPU below which a run of this configuration cannot be: of other layouts its states alone.

    These are 16 bytes a parameter with Adam: weights and gradients of 2 each and 12 of optimizer states, or in fp32
    4, 4 and 8; ZeRO shares out the states from stage 1 on, the gradients from 2, the weights from 3 (Rajbhandari et al.
    2020, "ZeRO", section 3 and figure 1). A stage of a pipeline is taken for the mean of them.

    Raises:
        ConfigError: parts of the model cannot be counted.
    """
    if _is_counted(cfg):
        recompute = bool(cfg.checkpoint_activations)
        return memory_gib(cfg, padded_vocab_size, cfg.train_micro_batch_size_per_gpu, recompute=recompute)
    width = 4 if cfg.precision == "fp32" else 2
    states = 0 if cfg.offload is not None else 16 - 2 * width
    replicas = max(1, cfg.data_parallel_size)
    parts = enumerate((states, width, width), start=1)
    bytes_each = sum(size / (replicas if cfg.zero_stage >= stage else 1) for stage, size in parts)
    parameters = cfg.parameter_count(padded_vocab_size, cfg.model_parallel_size) / max(1, cfg.pipe_parallel_size)
    return parameters * bytes_each / GIB


def _is_counted(cfg: NeoxConfig) -> bool:
    return (
        cfg.pipe_parallel_size <= 1
        and cfg.model_parallel_size == 1
        and cfg.precision == "bfloat16"
        and cfg.zero_stage == 1
        and cfg.offload is None
        and not (cfg.checkpoint_activations and cfg.recompute_granularity == "selective")
        and not cfg.unsupported  # its parameters may be unknown
    )


def advice(cfg: NeoxConfig, padded_vocab_size: int, available_gib: float) -> list[str]:
    """Return what would be faster and has room in ``available_gib`` of a GPU; nothing for other layouts."""
    return list(_advice(cfg, padded_vocab_size, available_gib)) if _is_counted(cfg) else []


def _advice(cfg: NeoxConfig, padded_vocab_size: int, available_gib: float) -> Iterator[str]:
    micro, recompute = cfg.train_micro_batch_size_per_gpu, bool(cfg.checkpoint_activations)

    def needed(micro_batch: int, *, recompute: bool) -> float:
        return memory_gib(cfg, padded_vocab_size, micro_batch, recompute=recompute)

    def fits(micro_batch: int, *, recompute: bool) -> bool:
        return needed(micro_batch, recompute=recompute) <= _FILLED * available_gib

    if recompute and fits(micro, recompute=False):
        recompute = False
        yield (
            f"checkpoint_activations: false has room (about {needed(micro, recompute=False):.0f} of "
            f"{available_gib:.0f} GiB) and saves a forward pass, a quarter of the time"
        )
    larger = micro
    while 2 * larger * cfg.seq_length <= _ENOUGH_TOKENS and fits(2 * larger, recompute=recompute):
        larger *= 2
    if micro * cfg.seq_length >= _FEW_TOKENS or larger == micro:
        return
    steps, times = cfg.gradient_accumulation_steps, larger // micro
    batch = (
        f"with gradient_accumulation_steps {steps // times} the batch stays {cfg.train_batch_size}"
        if steps % times == 0
        else f"the batch becomes {cfg.train_batch_size * times}"
        if steps == 1
        else "choose gradient_accumulation_steps so that the batch stays"
    )
    yield (
        f"train_micro_batch_size_per_gpu {larger} has room (about {needed(larger, recompute=recompute):.0f} of "
        f"{available_gib:.0f} GiB) and is faster than {micro}: {micro * cfg.seq_length:,} tokens at a time are few for "
        f"a GPU; {batch}"
    )

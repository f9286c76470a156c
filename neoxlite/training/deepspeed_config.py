"""The configuration that DeepSpeed receives. Imports no torch."""

from __future__ import annotations

from typing import Any

# Keys of zero_optimization that tune a stage and leave its results alone.
_ZERO_TUNING = (
    "allgather_partitions",
    "allgather_bucket_size",
    "overlap_comm",
    "reduce_scatter",
    "reduce_bucket_size",
    "contiguous_gradients",
    "round_robin_gradients",
    "stage3_param_persistence_threshold",
    "stage3_prefetch_bucket_size",
    "stage3_max_live_parameters",
    "sub_group_size",
)


def deepspeed_config(cfg: Any, *, direct: bool = False) -> dict[str, Any]:
    """Return the configuration that DeepSpeed receives; with ``direct`` the sums of gradients are not its business."""
    block = cfg.zero_optimization
    config: dict[str, Any] = {
        "train_batch_size": cfg.train_batch_size,
        "train_micro_batch_size_per_gpu": cfg.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": cfg.gradient_accumulation_steps,
        "gradient_clipping": cfg.gradient_clipping if cfg.zero_stage > 0 else 0.0,
        "steps_per_print": None,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            **{key: block[key] for key in _ZERO_TUNING if key in block},
            "stage": cfg.zero_stage,
            **({"offload_optimizer": cfg.offload.deepspeed_block()} if cfg.offload else {}),
        },
        # It waits for the device in every micro-batch.
        "timers": {"throughput": {"enabled": False}},
    }
    if cfg.sequence_parallel and cfg.pipe_parallel_size > 1:
        # DeepSpeed takes what tensor-parallel ranks send to be the same, and has each send a part of it.
        config["pipeline"] = {"pipe_partitioned": False, "grad_partitioned": False}
    communication = "fp32" if cfg.fp32_allreduce else cfg.communication_data_type
    if communication:
        config["communication_data_type"] = communication
    if cfg.precision == "bfloat16":
        config["bf16"] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": "bf16" if direct else accumulation_dtype(cfg)}
    elif cfg.precision == "fp16":
        # Of a dynamic scale's numbers only that it is one: `LossScale` has them.
        config["fp16"] = {"enabled": True, "loss_scale": (cfg.fp16 or {}).get("loss_scale", 0)}
        config["data_types"] = {"grad_accum_dtype": accumulation_dtype(cfg)}
    return config


def accumulation_dtype(cfg: Any) -> str:
    """Return the dtype in which a bf16 or fp16 run adds up gradients."""
    default = "fp16" if cfg.precision == "fp16" else "fp32"
    return str((cfg.data_types or {}).get("grad_accum_dtype") or default)

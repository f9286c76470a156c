"""Each key that neoxlite calls used has two values with a different outcome: no key is read and then ignored.

The outcome is never the key itself: it is a number that follows, the model, the optimiser, the data, what DeepSpeed is
told, what is launched where, or what a whole training leaves behind.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forked_worlds import TINY, write_dataset

from neoxlite.config import NeoxConfig, Support, key_table, load_config
from neoxlite.config.keys import block_table
from tests.neoxlite.config import effects
from tests.neoxlite.config.samples import GOLDEN

_Look = Callable[[NeoxConfig], Any]
_Keys = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two values of a key, on the small configuration with ``base`` changed, and how to look at the outcome."""

    look: _Look
    first: Any
    second: Any
    base: _Keys = field(default_factory=dict)
    world_size: int | None = 1


def _facts(first: Any, second: Any, /, world_size: int | None = 1, **base: Any) -> Pair:
    return Pair(effects.facts, first, second, base, world_size)


def _model(first: Any, second: Any, /, **base: Any) -> Pair:
    return Pair(effects.model, first, second, base)


def _adam(**params: Any) -> _Keys:
    return {"type": "Adam", "params": {"lr": 0.002, **params}}


_BF16 = {"bf16": {"enabled": True}}
_FP16 = {"fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2}}
_WITH_SCALE: _Keys = {**_FP16, "zero_optimization": {"stage": 2}}

RESOLVED: dict[str, Pair] = {
    "train_batch_size": _facts(4, 8, gradient_accumulation_steps=None),
    "train_micro_batch_size_per_gpu": _facts(2, 4),
    "gradient_accumulation_steps": _facts(2, 4),
    "fp16": _facts({"enabled": False}, {"enabled": True}),
    "fp16.enabled": _facts(False, True),
    "bf16": _facts({"enabled": False}, {"enabled": True}),
    "bf16.enabled": _facts(False, True),
    "zero_optimization": _facts({"stage": 0}, {"stage": 1}),
    "zero_optimization.stage": _facts(0, 1),
    "pipe_parallel_size": _facts(1, 2, 2),
    "model_parallel_size": _facts(1, 2, 2),
    "pipe_partition_method": _facts("uniform", "type:transformer", 2, pipe_parallel_size=2, num_layers=6),
    "global_num_gpus": _facts(1, 2, None),
    "num_layers": _facts(2, 3),
    "hidden_size": _facts(32, 64),
    "intermediate_size": _facts(64, 96),
    "mlp_multiple_of": _facts(1, 48),
    "expansion_factor": _facts(2.0, 3.0),
    "num_kv_heads": _facts(2, 4),
    "seq_length": _facts(16, 32),
    "max_position_embeddings": _facts(32, 64, pos_emb="learned"),
    "norm": _facts("layernorm", "rmsnorm"),
    "pos_emb": _facts("none", "learned"),
    "no_weight_tying": _facts(False, True),
    "gpt_j_tied": _facts(False, True, gpt_j_residual=True),
    "use_bias_in_norms": _facts(False, True),
    "use_bias_in_attn_linear": _facts(False, True),
    "use_bias_in_mlp": _facts(False, True),
    "make_vocab_size_divisible_by": _facts(128, 1024),
    "padded_vocab_size": _facts(512, 1024),
    "checkpoint_activations": _facts(False, True),
    "recompute_granularity": _facts("full", "selective", checkpoint_activations=True),
    "precision": Pair(effects.engine, "fp32", "bfloat16"),
    "attention_config": Pair(effects.unsupported, ["global"] * 3, ["local"] * 3),
    "optimizer.type": Pair(effects.unsupported, "Adam", "Lion"),
}

BUILT: dict[str, Pair] = {
    "num_attention_heads": _model(4, 8, rotary_pct=1.0),
    "layernorm_epsilon": _model(1e-5, 1e-1),
    "rms_norm_epsilon": _model(1e-5, 1e-1, norm="rmsnorm"),
    "activation": _model("gelu", "relu"),
    "bias_gelu_fusion": _model(False, True),
    "rotary_pct": _model(0.25, 1.0),
    "rotary_emb_base": _model(100, 10000, rotary_pct=1.0),
    "sliding_window_width": _model(2, 5),
    "gpt_j_residual": _model(False, True),
    "init_method": _model("normal", "small_init"),
    "output_layer_init_method": _model("scaled_normal", "wang_init"),
    "init_method_std": _model(0.02, 0.1),
    "attention_dropout": _model(0.0, 0.5),
    "hidden_dropout": _model(0.0, 0.5),
    "seed": _model(1, 2),
    "checkpoint_num_layers": Pair(effects.recomputed, 1, 2, {"checkpoint_activations": True}),
    "partition_activations": Pair(effects.kept_inputs, False, True),
    "checkpoint_in_cpu": Pair(effects.kept_inputs, False, True),
    "sequence_parallel": Pair(
        effects.engine, False, True, {"model_parallel_size": 2, "pipe_parallel_size": 2, "num_layers": 4}, 4
    ),
    "zero_optimization.offload_optimizer": Pair(effects.engine, {"device": "none"}, {"device": "cpu"}),
    "zero_optimization.cpu_offload": Pair(effects.engine, False, True),
    "train_iters": Pair(effects.schedule, 10, 20),
    "lr_decay_style": Pair(effects.schedule, "linear", "cosine"),
    "lr_decay_iters": Pair(effects.schedule, 5, 10),
    "lr_decay_fraction": Pair(effects.schedule, 0.5, 1.0),
    "min_lr": Pair(effects.schedule, 0.0, 1e-3),
    "warmup": Pair(effects.schedule, 0.0, 0.5),
    "optimizer": Pair(effects.optimizer, _adam(eps=1e-8), _adam(eps=1e-6)),
    "optimizer.params.lr": Pair(effects.schedule, 0.001, 0.002),
    "optimizer.params.betas": Pair(effects.optimizer, [0.9, 0.95], [0.9, 0.999]),
    "optimizer.params.eps": Pair(effects.optimizer, 1e-8, 1e-6),
    "weight_decay": Pair(effects.optimizer, 0.0, 0.1),
    "data_types": Pair(effects.engine, {"grad_accum_dtype": "fp32"}, {"grad_accum_dtype": "bf16"}, _BF16),
    "data_types.grad_accum_dtype": Pair(effects.engine, "fp32", "bf16", _BF16),
    "fp16.loss_scale": Pair(effects.loss_scales, 0, 128, _FP16),
    "fp16.initial_scale_power": Pair(effects.loss_scales, 4, 8, _FP16),
    "fp16.loss_scale_window": Pair(effects.loss_scales, 2, 4, _FP16),
    "fp16.hysteresis": Pair(effects.loss_scales, 1, 3, _FP16),
    "fp16.consecutive_hysteresis": Pair(effects.loss_scales, False, True, _FP16),
    "fp16.min_loss_scale": Pair(effects.loss_scales, 1, 8, _FP16),
    "fp32_allreduce": Pair(effects.engine, False, True, _WITH_SCALE),
    "communication_data_type": Pair(effects.engine, "fp16", "fp32", _WITH_SCALE),
    "zero_optimization.allgather_partitions": Pair(effects.engine, False, True),
    "zero_optimization.allgather_bucket_size": Pair(effects.engine, 1000, 2000),
    "zero_optimization.overlap_comm": Pair(effects.engine, False, True),
    "zero_optimization.reduce_scatter": Pair(effects.engine, False, True),
    "zero_optimization.reduce_bucket_size": Pair(effects.engine, 1000, 2000),
    "zero_optimization.contiguous_gradients": Pair(effects.engine, False, True),
    "zero_optimization.round_robin_gradients": Pair(effects.engine, False, True),
    "zero_optimization.stage3_param_persistence_threshold": Pair(effects.engine, 1000, 2000),
    "zero_optimization.stage3_prefetch_bucket_size": Pair(effects.engine, 1000, 2000),
    "zero_optimization.stage3_max_live_parameters": Pair(effects.engine, 1000, 2000),
    "zero_optimization.sub_group_size": Pair(effects.engine, 1000, 2000),
    "kernels": Pair(effects.kernels, None, {"fused_head_loss": True}),
    "kernels.compile_blocks": Pair(effects.kernels, False, True),
    "kernels.fused_head_loss": Pair(effects.kernels, False, True),
    "kernels.fused_gelu": Pair(effects.kernels, False, True),
    "kernels.fused_rotary": Pair(effects.kernels, False, True),
    "kernels.deferred_residual": Pair(effects.kernels, False, True),
    "kernels.fp8": Pair(effects.kernels, False, True),
    "kernels.fp8_recipe": Pair(effects.kernels, "careful", "fastest", {"kernels": {"fp8": True}}),
    "zero_optimization.implementation": Pair(
        effects.who_steps, "direct", "deepspeed", {**_BF16, "zero_optimization": {"stage": 1}}
    ),
    "checkpoint_scale": Pair(effects.saves, "linear", "log", {"checkpoint_factor": 2}),
    "checkpoint_factor": Pair(effects.saves, 2, 3),
    "extra_save_iters": Pair(effects.saves, [1], [1, 7]),
    "use_wandb": Pair(effects.wandb, False, True),
    "wandb_group": Pair(effects.wandb, "a", "b", {"use_wandb": True}),
    "wandb_run_name": Pair(effects.wandb, "a", "b", {"use_wandb": True}),
    "wandb_team": Pair(effects.wandb, "a", "b", {"use_wandb": True}),
    "wandb_project": Pair(effects.wandb, "a", "b", {"use_wandb": True}),
    "wandb_host": Pair(effects.wandb, "https://a.example", "https://b.example", {"use_wandb": True}),
}

# Values that begin with @ are names of files and folders that the fixture below makes.
_LISTS = {"data_path": None, **{f"{part}_data_paths": ["@a", "@b"] for part in ("train", "valid", "test")}}
_SOME_EVALUATION = {"eval_iters": 4, "eval_interval": 5}
READ: dict[str, Pair] = {
    "data_path": Pair(effects.samples, "@a", "@b"),
    "split": Pair(effects.samples, "8,1,1", "1,1,8"),
    **{f"{part}_data_paths": Pair(effects.samples, ["@a"], ["@b"], _LISTS) for part in ("train", "valid", "test")},
    **{f"{part}_data_weights": Pair(effects.samples, [1, 9], [9, 1], _LISTS) for part in ("train", "valid", "test")},
    "weight_by_num_documents": Pair(effects.samples, False, True, {**_LISTS, "weighted_sampler_alpha": 0.1}),
    "weighted_sampler_alpha": Pair(effects.samples, 0.1, 1.0, {**_LISTS, "weight_by_num_documents": True}),
    "tokenizer_type": Pair(effects.tokens, "CharLevelTokenizer", "GPT2BPETokenizer"),
    "vocab_file": Pair(
        effects.tokens, "@vocab.json", "@other_vocab.json", {"tokenizer_type": "GPT2BPETokenizer", "merge_file": "@all"}
    ),
    "merge_file": Pair(
        effects.tokens, "@all", "@turned", {"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "@vocab.json"}
    ),
}

_HOSTS = {"hostfile": "@hosts"}
LAUNCHED: dict[str, Pair] = {
    "hostfile": Pair(effects.launching, "@hosts", "@other_hosts"),
    "include": Pair(effects.launching, "node1@node2", "node2@node3", _HOSTS),
    "exclude": Pair(effects.launching, "node1", "node2", _HOSTS),
    "num_nodes": Pair(effects.launching, 2, 3, _HOSTS),
    "num_gpus": Pair(effects.launching, 2, 4, _HOSTS),
    "master_port": Pair(effects.launching, 29500, 29600, _HOSTS),
    "master_addr": Pair(effects.launching, "node1", "node2", _HOSTS),
    "launcher": Pair(effects.launching, "pdsh", "openmpi", _HOSTS),
    "no_ssh_check": Pair(effects.launching, False, True, _HOSTS),
}

_RESUME = {"load": "@checkpoints", "train_iters": 6, "lr_decay_iters": 4}
_OTHER_SCHEDULE = {**_RESUME, "min_lr": 0.001}
_SAVE = {"save": "@new", "train_iters": 4, "checkpoint_factor": 1}
RUN: dict[str, Pair] = {
    "train_epochs": Pair(effects.facts, 1, 2, {"train_iters": None, "train_micro_batch_size_per_gpu": 8}),
    "gradient_clipping": Pair(effects.facts, 1e-7, 1.0),
    "eod_mask_loss": Pair(effects.facts, False, True),
    "log_interval": Pair(effects.facts, 1, 2),
    "eval_interval": Pair(effects.facts, 2, 3, {"eval_iters": 1}),
    "eval_iters": Pair(effects.facts, 1, 2, {"eval_interval": 2}),
    "wall_clock_breakdown": Pair(effects.facts, False, True),
    "tensorboard_dir": Pair(effects.facts, None, "@new/tensorboard"),
    "peak_theoretical_tflops": Pair(effects.facts, None, 100.0),
    "save": Pair(effects.facts, None, "@new", {"checkpoint_factor": 2}),
    "keep_last_n_checkpoints": Pair(effects.facts, 1, 2, _SAVE),
    "no_save_optim": Pair(effects.facts, False, True, _SAVE),
    "load": Pair(effects.facts, None, "@checkpoints"),
    "iteration": Pair(effects.facts, 2, 4, _RESUME),
    "finetune": Pair(effects.facts, False, True, _RESUME),
    "no_load_optim": Pair(effects.facts, False, True, _RESUME),
    "checkpoint": Pair(effects.facts, None, {"async_save": True}, _SAVE),
    "checkpoint.async_save": Pair(effects.facts, False, True, _SAVE),
    "checkpoint.check_resumed_loss": Pair(effects.facts, False, True, {**_RESUME, "load": "@jump"}),
    "override_lr_scheduler": Pair(effects.facts, False, True, _OTHER_SCHEDULE),
    "use_checkpoint_lr_scheduler": Pair(effects.facts, False, True, _OTHER_SCHEDULE),
}


def test_every_used_key_is_looked_at() -> None:
    """A key that becomes used needs a pair here, one that is no longer used loses it; none is looked at twice."""
    acted_upon = (Support.USED, Support.LAUNCH)
    used = {name for name, key in (key_table() | block_table()).items() if key.support in acted_upon}
    tables = (RESOLVED, BUILT, READ, LAUNCHED, RUN)
    looked_at = [name for table in tables for name in table]
    assert len(looked_at) == len(set(looked_at))
    assert set(looked_at) == used


def _configuration(folder: Path, pair: Pair, name: str, value: Any, **others: Any) -> NeoxConfig:
    keys = {**TINY, **others, **pair.base}
    block, _, rest = name.partition(".")
    if rest:
        *path, last = rest.split(".")
        inner = keys[block] = json.loads(json.dumps(keys.get(block) or {}))
        for step in path:
            inner = inner[step]
        inner[last] = value
    else:
        keys[name] = value
    path = folder / "tiny.yml"
    path.write_text(yaml.safe_dump(_placed(keys, folder)), encoding="utf-8")
    return load_config(path, world_size=pair.world_size, allow_unsupported=pair.look is effects.unsupported)


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _placed(item, folder) for name, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, folder) for item in value]
    return str(folder / value[1:]) if isinstance(value, str) and value.startswith("@") else value


def _outcome(folder: Path, pair: Pair, name: str, value: Any) -> Any:
    result = pair.look(_configuration(folder, pair, name, value))
    if pair.look is effects.facts:  # which repeat some keys
        result.pop(name, None)
    return result


@pytest.mark.parametrize("name", RESOLVED)
def test_resolved_values(name: str, tmp_path: Path) -> None:
    """Numbers that follow by arithmetic, or a refusal, differ; the same value twice gives the same."""
    pair = RESOLVED[name]
    first, again, second = (_outcome(tmp_path, pair, name, value) for value in (pair.first, pair.first, pair.second))
    assert first == again
    assert first != second


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built(name: str, tmp_path: Path, deepspeed_ready: None) -> None:
    """Model, schedule, optimiser, saves, or what DeepSpeed is told differ; the same value twice gives the same."""
    pair = BUILT[name]
    first, again, second = (_outcome(tmp_path, pair, name, value) for value in (pair.first, pair.first, pair.second))
    assert first == again
    assert first != second


def _write_inputs(folder: Path) -> None:
    """Write two datasets of bytes, the second with other documents and ends of documents, and GPT-2-style files."""
    rng = np.random.default_rng(1)
    for prefix, count in (("a", 40), ("b", 160)):
        documents = [rng.integers(0, 90, int(rng.integers(20, 60))).astype(np.uint16) for _ in range(count)]
        write_dataset(folder / prefix, documents)
    model = json.loads((GOLDEN / "tokenized" / "own_bpe_tokenizer.json").read_text(encoding="utf-8"))["model"]
    vocabulary = {"<|endoftext|>": len(model["vocab"]), **model["vocab"]}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    turned = {word: len(vocabulary) - 1 - number for word, number in vocabulary.items()}
    (folder / "other_vocab.json").write_text(json.dumps(turned), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    for name, kept in (("all", merges), ("turned", merges[::-1])):
        (folder / name).write_text("\n".join(["#version: 0.2", *kept, ""]), encoding="utf-8")


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str, tmp_path: Path) -> None:
    """Samples of the splits, or tokens of a text differ."""
    _write_inputs(tmp_path)
    pair = READ[name]
    defaults = {"data_path": "@a", **_SOME_EVALUATION}
    first, second = (
        pair.look(_configuration(tmp_path, pair, name, value, **defaults)) for value in (pair.first, pair.second)
    )
    assert first != second


@pytest.mark.parametrize("name", LAUNCHED)
def test_what_is_launched(name: str, tmp_path: Path) -> None:
    """Hosts, processes, launcher, or the place of the rendezvous differ."""
    for hosts, names in (("hosts", ("node1", "node2", "node3")), ("other_hosts", ("node4", "node5"))):
        (tmp_path / hosts).write_text("".join(f"{host} slots=8\n" for host in names), encoding="utf-8")
    pair = LAUNCHED[name]
    first, second = (pair.look(_configuration(tmp_path, pair, name, value)) for value in (pair.first, pair.second))
    assert first != second


@pytest.fixture(scope="module")
def checkpoints(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with datasets and a checkpoint of iterations 2 and 4."""
    folder = tmp_path_factory.mktemp("effects")
    _write_inputs(folder)
    pair = Pair(effects.facts, None, None, {"data_path": "@a", "train_iters": 4, "checkpoint_factor": 2})
    world.run(1, _printed, _configuration(folder, pair, "save", "@checkpoints"), folder / "metrics.jsonl")
    shutil.copytree(folder / "checkpoints", folder / "jump")
    manifest = folder / "jump" / "global_step4" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["training"]["losses"] = [0.5] * 8  # as if the weights had been far better
    del content["crc32"]  # of what it said before
    manifest.write_text(json.dumps(content))
    return folder


def _printed(ranks: Any, cfg: NeoxConfig, metrics: Path) -> str:
    from neoxlite.training import run
    from neoxlite.training.environment import RunFiles

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        run(cfg, ranks=ranks, files=RunFiles(metrics=metrics))
    return output.getvalue()


_CLOCK = (
    *("samples_per_s", "tokens_per_s", "iteration_time_ms", "tflops", "time", "data_wait_ms", "model_tflops"),
    *("mfu", "hfu", "memory_mb", "own_ms", "blocked_ms", "seconds"),
)


@pytest.mark.ci
@pytest.mark.parametrize("name", RUN)
def test_whole_trainings(name: str, world: Any, checkpoints: Path, tmp_path: Path) -> None:
    """Numbers of the log, validations, or files left behind differ, or one of the two is refused."""
    pair = RUN[name]
    outcomes = []
    for number, value in enumerate((pair.first, pair.second)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for entry in checkpoints.iterdir():
            (folder / entry.name).symlink_to(entry)
        defaults = {"data_path": "@a", "train_iters": 4}
        try:
            cfg = _configuration(folder, pair, name, value, **defaults)
            (text,) = world.run(1, _printed, cfg, folder / "run.jsonl")
        except AssertionError as error:
            outcomes.append({"refused": str(error).strip().splitlines()[-1]})
        else:
            outcomes.append(_left_behind(folder, text))
    assert outcomes[0] != outcomes[1]
    refused = [outcome for outcome in outcomes if "refused" in outcome]
    assert len(refused) == (1 if name.endswith(("lr_scheduler", "check_resumed_loss")) else 0), refused


def _left_behind(folder: Path, text: str) -> Mapping[str, Any]:
    lines = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [
        {key: sorted(item) if isinstance(item, dict) else item for key, item in entry.items() if key not in _CLOCK}
        for entry in map(json.loads, lines)
        if entry.get("event") != "start"  # which names the folder
    ]
    files = {path.relative_to(folder).parent for path in folder.glob("new/**/*")}
    counts = {str(parent): len(list((folder / parent).iterdir())) for parent in files}
    return {"entries": entries, "files": counts, "utilisation": "MFU" in text}

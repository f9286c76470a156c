"""Memory of a run beside what was measured on an H200, and the advice that follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from neoxlite.config import load_config
from neoxlite.config.commands.show import show
from neoxlite.config.micro_batch import GIB, advice, least_gib, memory_gib

VOCABULARY = 50304


def shipped(name: str, folder: Path, **keys: Any) -> Any:
    """Return a shipped size with other keys."""
    (folder / "own.yml").write_text(yaml.safe_dump(keys))
    return load_config([name, folder / "own.yml"], world_size=1)


@pytest.mark.parametrize(
    ("name", "micro_batch", "steps", "length", "recompute", "measured_gib"),
    [
        ("125M", 32, 1, 2048, False, 29.2),  # docs/performance.md, torch's max allocated
        ("350M", 16, 1, 2048, False, 35.8),
        ("1-3B", 8, 1, 2048, False, 47.5),
        ("1-3B", 8, 8, 2048, False, 52.9),
        ("1-3B", 16, 1, 2048, False, 76.4),
        ("1-3B", 2, 1, 16384, False, 76.4),
        ("2-7B", 8, 1, 2048, False, 83.4),
        ("6-7B", 4, 1, 2048, True, 103.1),
    ],
)
def test_memory_is_near_what_was_measured(
    name: str, micro_batch: int, steps: int, length: int, recompute: bool, measured_gib: float
) -> None:
    """Up to 3 % below it."""
    keys = {"seq_length": length, "max_position_embeddings": length, "gradient_accumulation_steps": steps}
    cfg = load_config(name, overrides=keys, world_size=1)
    found = memory_gib(cfg, VOCABULARY, micro_batch, recompute=recompute)
    assert 0.97 * measured_gib < found <= measured_gib


@pytest.mark.parametrize(
    ("precision", "stage", "gigabytes"), [("fp32", 0, 120.0), ("fp16", 1, 31.4), ("fp16", 2, 16.6), ("fp16", 3, 1.9)]
)
def test_the_states_of_a_model_are_those_of_the_paper(precision: str, stage: int, gigabytes: float) -> None:
    """Figure 1 of "ZeRO" (arXiv 1910.02054): 7.5 thousand million parameters on 64 GPUs."""
    cfg = in_another_precision(precision, 64, **{"zero_optimization.stage": stage})
    of_each = least_gib(cfg, VOCABULARY) * GIB / cfg.parameter_count(VOCABULARY)
    assert of_each * 7.5 == pytest.approx(gigabytes, abs=0.05)


def in_another_precision(precision: str, world_size: int = 1, **keys: Any) -> Any:
    """Return 1-3B, whose file says bf16, in ``precision``, of which no activations are counted."""
    return load_config("1-3B", overrides={"bf16": None, "precision": precision, **keys}, world_size=world_size)


def test_the_least_memory_of_a_layout() -> None:
    """Stages and the host take their part; where activations are counted they are in it."""
    whole = least_gib(in_another_precision("fp16"), VOCABULARY)
    stages = in_another_precision("fp16", 4, pipe_parallel_size=4)
    assert least_gib(stages, VOCABULARY) == pytest.approx(whole / 4)
    host = in_another_precision("fp16", **{"zero_optimization.offload_optimizer": {"device": "cpu"}})
    assert least_gib(host, VOCABULARY) == pytest.approx(whole / 4)
    counted = load_config("6-7B", overrides={"train_micro_batch_size_per_gpu": 4}, world_size=1)
    assert 0.97 * 103.1 < least_gib(counted, VOCABULARY) <= 103.1  # docs/performance.md, torch's max allocated


def test_advice(tmp_path: Path) -> None:
    """A shipped file recomputes at a micro-batch of 4; an H200 has room for neither to be needed."""
    cfg = shipped("1-3B", tmp_path, gradient_accumulation_steps=8)
    recompute, larger = advice(cfg, VOCABULARY, 140)
    assert recompute.startswith("checkpoint_activations: false has room (about 38 of 140 GiB)")
    assert larger.startswith("train_micro_batch_size_per_gpu 16 has room (about 81 of 140 GiB) and is faster than 4")
    assert larger.endswith("with gradient_accumulation_steps 2 the batch stays 32")
    assert [line.partition(" has")[0] for line in advice(cfg, VOCABULARY, 80)] == [
        "checkpoint_activations: false",
        "train_micro_batch_size_per_gpu 8",
    ]
    assert advice(cfg, VOCABULARY, 24) == []
    keys = {"train_micro_batch_size_per_gpu": 16, "checkpoint_activations": False}
    full = load_config("1-3B", overrides=keys, world_size=1)
    assert advice(full, VOCABULARY, 140) == []


def test_no_advice_for_what_is_not_counted() -> None:
    """Slices, stages, a part of the activations."""
    for key in ("model_parallel_size", "pipe_parallel_size"):
        assert advice(load_config("1-3B", overrides={key: 2}, world_size=2), VOCABULARY, 140) == []
    selective = load_config("1-3B", overrides={"recompute_granularity": "selective"}, world_size=1)
    assert advice(selective, VOCABULARY, 140) == []


def test_config_show_lists_what_cannot_be_trained_with_a_gpus_memory_too() -> None:
    """A kind of attention whose parameters are not known here is no reason to refuse the listing."""
    keys = ["--set", 'attention_config=[[["rwkv"], 24]]']
    run = CliRunner().invoke(show, ["1-3B", "--keys", "none", "--gpu-memory", "80", *keys])
    assert run.exit_code == 0, run.output
    assert "cannot train  --set: attention_config: rwkv is not supported by neoxlite" in run.output
    assert "faster" not in run.output


def test_config_show_says_it_for_a_gpu() -> None:
    """One line each, and in JSON; without the memory nothing is said; a memory that is none is refused."""
    run = CliRunner().invoke(show, ["1-3B", "--keys", "none", "--gpu-memory", "140"])
    lines = [line for line in run.output.splitlines() if line.startswith("faster")]
    assert [line.split()[1] for line in lines] == ["checkpoint_activations:", "train_micro_batch_size_per_gpu"]
    none = CliRunner().invoke(show, ["1-3B", "--keys", "none", "--gpu-memory", "24"]).output
    assert "\nfaster      nothing found; looked at are bf16 with ZeRO stage 1, without pipeline, " in none
    told = json.loads(CliRunner().invoke(show, ["1-3B", "--json", "--gpu-memory", "24"]).output)
    assert told["advice"] == []
    assert "faster" not in CliRunner().invoke(show, ["1-3B", "--keys", "none"]).output
    refused = CliRunner().invoke(show, ["1-3B", "--gpu-memory", "0"])
    assert refused.exit_code == 2
    assert "--gpu-memory" in refused.output

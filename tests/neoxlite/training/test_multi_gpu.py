"""The script that measures several GPUs (benchmarks/gpu/multi.py), on CPUs: plan, schedule, arithmetic, worlds."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "gpu"))

import multi
import multi_schedule
import yaml
from multi_items import BEHIND, OTHER_CUT, Plan, same_cut
from multi_layouts import Layout, config
from multi_predict import Shape, peak_gib, step_ms
from multi_schedule import Schedule
from multi_world import Item


def plan(folder: Path, gpus: int) -> Plan:
    return Plan(folder, gpus, "cuda", tiny=False, sizes=("1-3B",))


def test_items_for_two_and_for_four_gpus(tmp_path: Path) -> None:
    """Two GPUs have dp, tp and pp; four also the mixed layouts. What an item needs stands before it."""
    two, four = (plan(tmp_path, gpus).items() for gpus in (2, 4))
    names = [item.name for item in four]
    assert len(set(names)) == len(names)
    for mixed in ("dp2 x pp2", "dp2 x tp2", "tp2 x pp2"):
        assert f"curve bf16 {mixed}" in names
        assert f"reload fp32 {mixed}" in names
    assert {item.name for item in two} & {f"curve bf16 {kind}" for kind in ("dp2 z1 direct", "dp2 z3", "tp2", "pp2")}
    assert not any(" x " in item.name for item in two)
    for items in (two, four):
        for number, item in enumerate(items):
            assert {*item.needs, *item.after} <= {before.name for before in items[:number]}
            assert item.ranks == 1 or len(item.gpus) == item.ranks


def test_curves_are_held_against_one_of_the_same_cut(tmp_path: Path) -> None:
    """Whose micro-batches have as many sequences, but for the one curve that has none such."""
    made = {
        item.name.split(" ", 2)[2]: item for item in plan(tmp_path, 4).items() if item.name.startswith("curve bf16")
    }
    micro = {name: load(item)["train_micro_batch_size_per_gpu"] for name, item in made.items()}
    assert {name for name in micro if micro[name] != micro[same_cut(name)]} == {
        OTHER_CUT,
        "dp2 z1 direct, one micro-step",
    }
    assert {same_cut(name) for name in micro} == {"one", OTHER_CUT}


def load(item: Item) -> dict[str, Any]:
    """Return the configuration of an item."""
    values: dict[str, Any] = yaml.safe_load(Path(item.arguments["config"]).read_text())
    return values


SMALL, MIDDLE, LARGE = Shape(12, 768, 50304, 2048, 32), Shape(24, 2048, 50304, 2048, 8), Shape(32, 2560, 50304, 2048, 8)


# Largest sum of tensors measured on an H200, GiB: bf16, nothing recomputed; the layouts of two GPUs in one call.
@pytest.mark.parametrize(
    ("shape", "engine", "layout", "measured"),
    [
        (SMALL, "direct", {}, 29.2),
        (MIDDLE, "direct", {}, 47.5),
        (Shape(24, 2048, 50304, 2048, 16), "direct", {}, 76.4),
        (MIDDLE, "direct", {"steps": 8}, 52.9),
        (LARGE, "direct", {}, 83.4),
        (MIDDLE, "ddp", {}, 52.7),
        (MIDDLE, "direct", {"data": 2}, 39.6),
        (MIDDLE, "ddp", {"data": 2}, 55.4),
        (MIDDLE, "deepspeed", {"data": 2}, 44.9),
        (MIDDLE, "direct", {"tensor": 2}, 26.9),
        (MIDDLE, "direct", {"stages": 2, "steps": 16}, 42.7),
        (LARGE, "ddp", {}, 93.8),
        (LARGE, "direct", {"data": 2}, 67.9),
        (LARGE, "ddp", {"data": 2}, 99.0),
        (LARGE, "deepspeed", {"data": 2}, 78.2),
        (LARGE, "direct", {"tensor": 2}, 46.9),
        (LARGE, "direct", {"stages": 2, "steps": 16}, 73.3),
    ],
)
def test_memory_by_arithmetic(shape: Shape, engine: str, layout: dict[str, int], measured: float) -> None:
    """Within 3 %, and not more than was needed: what a kernel works with is not counted."""
    assert 0.97 * measured < peak_gib(shape, engine=engine, **layout) < measured


def test_parameters_by_arithmetic() -> None:
    """Of the models 1.3B and 2.7B: the counts of Pythia's model cards for the same sizes."""
    assert Shape(24, 2048, 50304, 2048, 8).parameters == 1414647808
    assert Shape(32, 2560, 50304, 2048, 8).parameters == 2775208960


def test_steps_by_arithmetic() -> None:
    """The 1.3B model from 256.3 ms of one GPU, by hand; memory of 3.7 TB/s, 64 MiB between layers at 238 GB/s."""
    shape = Shape(24, 2048, 50304, 2048, 8)
    stepped = 30 * 1.414648 / 3.7  # ms: GB through the optimizer
    computed = 256.3 - stepped
    # 13 of 24 blocks of 109.1 MFLOP and a head of 206.0; gradients added to sums of 10 bytes; two tensors sent.
    slot = computed * 13 * 109.128 / (24 * 109.128 + 206.045) + 10 * 0.707 / 3.7 + 2 * 67.109 / 238
    pipeline = 16 * slot + computed / 2 + 10 * 0.707 / 3.7 + stepped / 2
    assert step_ms(shape, 256.3, engine="direct", stages=2, steps=16) == pytest.approx(pipeline, rel=1e-3)
    # 48 sums in the forward pass, and 2.8 % that both slices compute.
    slices = (256.3 * 0.972) / 2 + 256.3 * 0.028 + 48 * 67.109 / 238
    assert step_ms(shape, 256.3, engine="direct", tensor=2) == pytest.approx(slices, rel=1e-3)
    # Two messages of 2 bytes a parameter of a half, in pieces of 128 MiB each way: between 190 GB/s (64 MiB of a
    # gather) and 248 (512). A piece of 0.0949 of a half: laid flat (8 bytes), added and measured (12), updated (30).
    sent = 2 * 0.707324 / (190 + 58 * (256 - 64) / (512 - 64)) * 1000
    replicas = computed + 2 * sent + 0.0949 * (8 + 12 + 30) * 0.707324 / 3.7
    assert step_ms(shape, 256.3, engine="direct", data=2) == pytest.approx(replicas, rel=1e-3)


# What items do below; called in forked processes.


def say(ranks: Any, folder: Path, arguments: dict[str, Any]) -> dict[str, int]:
    return {"rank": ranks.rank, "seen": len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))}


def fail(ranks: Any, folder: Path, arguments: dict[str, Any]) -> None:
    raise ValueError("as planned")


def die(ranks: Any, folder: Path, arguments: dict[str, Any]) -> None:
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def hang(ranks: Any, folder: Path, arguments: dict[str, Any]) -> None:
    time.sleep(60)


def test_each_item_has_its_end_and_its_result_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails, one that is killed, one that hangs, one that is not reached: all others are known, and kept."""
    monkeypatch.setattr(multi_schedule, "context", lambda fresh: multiprocessing.get_context("fork"))
    results = multi.Results(tmp_path / "results.json")
    items = [
        Item("good", f"{__name__}:say", 2, gpus=(0, 1)),
        Item("bad", f"{__name__}:fail", 1),
        Item("dead", f"{__name__}:die", 2, limit_s=30),
        Item("slow", f"{__name__}:hang", 1, limit_s=0.2),
        Item("behind bad", f"{__name__}:say", 1, needs=("bad",)),
        Item("behind good", f"{__name__}:say", 1, needs=("good",), alone=True),
    ]
    Schedule(items, results, tmp_path, together=2).run(time.monotonic() + 60)
    known = json.loads((tmp_path / "results.json").read_text())
    assert known["good"]["ranks"] == [{"rank": 0, "seen": 2}, {"rank": 1, "seen": 2}]
    assert "ValueError: as planned" in known["bad"]["error"]
    assert "-9" in known["dead"]["error"]
    assert "limit" in known["slow"]["error"]
    assert known["behind bad"]["error"] == "needs bad"
    assert "ranks" in known["behind good"]
    Schedule([Item("late", f"{__name__}:say", 1)], results, tmp_path, together=2).run(time.monotonic() - 1)
    assert "late" not in multi.Results(tmp_path / "results.json").known


@pytest.mark.ci
def test_curves_and_checkpoints_of_two_layouts(world: Any, text_data: str, tmp_path: Path) -> None:
    """One process, and two replicas with the direct optimizer: one curve, and each goes on from the other's save."""
    import multi_train
    from multi_curves import BOUNDS, deviation

    iterations, saved_at = 20, 20 - BEHIND
    layouts = {"one": Layout(implementation="deepspeed"), "dp2": Layout(data=2, implementation="direct")}
    data = {name: [text_data] for name in ("train_data_paths", "valid_data_paths", "test_data_paths")}
    paths, curves = {}, {}
    for name, layout in layouts.items():
        keys = {**data, "tokenizer_type": "CharLevelTokenizer", "extra_save_iters": [saved_at], "log_interval": 1}
        paths[name] = config(
            tmp_path,
            name,
            "tiny",
            layout,
            precision="bfloat16",
            sequence=32,
            micro_batch=4 // layout.data,
            accumulation=2,
            iterations=iterations,
            save=str(tmp_path / name),
            make_vocab_size_divisible_by=64,
            **keys,
        )
        arguments = {"config": paths[name], "saved_at": saved_at}
        (tmp_path / f"job-{name}").mkdir()
        found = world.run(layout.ranks, multi_train.train, tmp_path / f"job-{name}", arguments)
        curves[name] = found[0]["losses"]
    assert curves["one"][-1] < curves["one"][0] - 0.1, "it learns"
    assert deviation(curves["dp2"], curves["one"]) < BOUNDS["bf16"]
    checkpoints = {name: str(tmp_path / name / f"global_step{saved_at}") for name in layouts}
    for name, layout in layouts.items():
        arguments = {"config": paths[name], "checkpoints": checkpoints, "iterations": BEHIND}
        found = world.run(layout.ranks, multi_train.reload, tmp_path / f"job-{name}", arguments)
        for writer, losses in found[0]["losses"].items():
            assert deviation(losses, curves[writer][-BEHIND:]) < BOUNDS["bf16"]
            assert losses == curves[writer][-BEHIND:] or writer != name, "its own it goes on with bit for bit"
        assert math.isfinite(losses[0])

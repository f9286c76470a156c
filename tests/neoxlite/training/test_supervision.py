"""What a run says of itself: slow ranks, the place of what is not finite, phases, a jump at a resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from neoxlite.parallel.topology import Grid, Topology
from neoxlite.training import phases as phases_module
from neoxlite.training.phases import BACKWARD, COMMUNICATION, FORWARD, Phases
from neoxlite.training.resumed_loss import LossJumpError, RecentLosses, check_resumed_loss, limit_after
from neoxlite.training.stragglers import Stragglers


def events_of(run: Any, name: str) -> list[dict[str, Any]]:
    """Return the entries of one kind of event in a run's metrics.jsonl."""
    entries = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry.get("event") == name]


# Slow ranks


def test_a_rank_is_named_after_three_slow_intervals_and_once() -> None:
    """More than 10 % above the median of the others, for 2 % of an iteration and more, three times in a row."""
    stragglers = Stragglers(Topology(Grid(data=4)))
    slow, even = [1.0, 1.0, 1.2, 1.05], [1.0, 1.0, 1.0, 1.05]
    assert stragglers.add(slow, 2.0) == ([], [])
    assert stragglers.add(even, 2.0) == ([], [])
    for _ in range(2):
        assert stragglers.add(slow, 2.0) == ([], [])
    named, recovered = stragglers.add(slow, 2.0)
    assert [(found.rank, found.own_s, found.others_s) for found in named] == [(2, 1.2, 1.0)]
    assert recovered == []
    assert stragglers.add(slow, 2.0) == ([], [])
    assert stragglers.named == [2]
    assert stragglers.add(even, 2.0) == ([], [2])
    # A difference that is nothing beside the iteration is not worth a word.
    for _ in range(4):
        assert stragglers.add(slow, 20.0) == ([], [])


def test_a_rank_is_not_named_beside_one_that_is_far_slower() -> None:
    """All wait for the slowest: a rank that loses less than half as much is named when that one is mended."""
    stragglers = Stragglers(Topology(Grid(pipeline=2, data=2)))
    # Stage by stage, from a run on a machine of two cores where another rank slept.
    both, after = [0.0308, 0.4248, 0.0083, 0.0385], [0.0308, 0.0310, 0.0083, 0.0385]
    named = [found.rank for _ in range(4) for found in stragglers.add(both, 0.531)[0]]
    assert named == [1]
    assert [stragglers.add(after, 0.531)[1] for _ in range(2)] == [[1], []]
    assert [found.rank for found in stragglers.add(after, 0.531)[0]] == [3]
    equal = Stragglers(Topology(Grid(data=4)))
    assert [found.rank for _ in range(3) for found in equal.add([1.0, 1.5, 1.8, 1.0], 2.0)[0]] == [1, 2]


def test_ranks_of_one_stage_are_compared() -> None:
    """Stages differ in their work; tensor-parallel ranks are slow together, and are all named."""
    stragglers = Stragglers(Topology(Grid(pipeline=2, data=2, tensor=2)))
    own = [1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 3.0, 3.0]
    named = [stragglers.add(own, 10.0)[0] for _ in range(3)][-1]
    assert {found.rank for found in named} == {4, 5}


@pytest.mark.ci
@pytest.mark.parametrize(("size", "layout"), [(2, {}), (4, {"pipe_parallel_size": 2})])
def test_a_rank_made_slow_is_named(
    size: int, layout: dict[str, Any], train: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A rank that sleeps in its forward passes is named with its host and its times; the others are not."""
    from neoxlite.model.layers import Block

    slow = 1
    real: Callable[..., Any] = Block.forward

    def forward(self: Any, x: Any, *rest: Any) -> Any:
        if self.block == 0 and torch.distributed.get_rank() == slow:
            time.sleep(0.5)  # more than a busy machine takes from another rank
        return real(self, x, *rest)

    monkeypatch.setattr(Block, "forward", forward)
    run = train(size, **layout, train_iters=3)
    named = events_of(run, "straggler")
    assert [event["rank"] for event in named] == [slow]
    assert named[0]["iteration"] == 3
    assert named[0]["own_ms"] > 500
    assert f"WARNING: rank {slow} on {named[0]['host']} is slow" in capfd.readouterr().out
    assert {entry["own_ms"]["slowest_rank"] for entry in run.metrics} == {slow}


# What is not finite


def _plant(monkeypatch: pytest.MonkeyPatch, fault: str, layer: str, rank: int) -> None:
    """Put a fault into iteration 2 on one rank: in a weight for good, in an output or a gradient for this iteration."""
    from neoxlite.training.engine import Engine
    from neoxlite.training.pipeline_engine import PipelineEngine

    def planted(engine: Any, iteration: int) -> None:
        if engine.topology.rank != rank or iteration != 2:
            return
        modules = dict(engine.module.named_modules())
        if fault == "parameter":
            with torch.no_grad():
                modules[layer].weight.view(-1)[3] = float("inf")
        elif fault == "output":
            modules[layer].register_forward_hook(lambda module, args, output: output * float("nan"))
        else:
            modules[layer].weight.register_hook(lambda gradient: gradient / 0)

    for kind in (Engine, PipelineEngine):
        real = kind.__dict__["train_step"]

        def step(self: Any, batches: Any, iteration: int, real: Any = real) -> Any:
            planted(self, iteration)
            return real(self, batches, iteration)

        monkeypatch.setattr(kind, "train_step", step)


CASES: list[Any] = [
    (1, {}, "output", "3.attention.dense", "the output of attention.dense in block 1 (layer 3)"),
    (1, {"zero_optimization": {"stage": 0}}, "gradient", "7.final_linear", "final_linear.weight in the head (layer 7)"),
    *(
        pytest.param(*case, marks=pytest.mark.ci)
        for case in (
            (1, {}, "output", "", "the loss itself, behind finite outputs of all layers (rank 0)"),
            (1, {}, "parameter", "2.input_layernorm", "the parameter input_layernorm.weight in block 0 (layer 2)"),
            (2, {"precision": "bfloat16"}, "gradient", "2.mlp.linear1", "gradient of mlp.linear1.weight in block 0"),
            (2, {"zero_optimization": {"stage": 2}}, "gradient", "4.attention.query_key_value", "in block 2 (layer 4)"),
            (2, {"zero_optimization": {"stage": 3}}, "output", "4.mlp", "the output of mlp in block 2 (layer 4)"),
            (2, {"model_parallel_size": 2}, "output", "6.norm", "the output of norm in the final norm (layer 6)"),
            (2, {"pipe_parallel_size": 2}, "output", "4.mlp", "the output of mlp in block 2 (layer 4)"),
            (1, {"checkpoint_activations": True}, "gradient", "2.mlp.linear2", "the gradient of mlp.linear2.weight"),
        )
    ),
]


@pytest.mark.parametrize(("size", "layout", "fault", "layer", "told"), CASES)
def test_a_planted_fault_is_named(
    size: int, layout: dict[str, Any], fault: str, layer: str, told: str, train: Any,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The first module, or the first parameter in the backward pass, with the iteration and the rank that has it."""
    rank = size - 1
    _plant(monkeypatch, fault, layer, rank)
    if fault == "gradient":  # whose step is left out
        train(size, **layout, train_iters=3)
    else:
        with pytest.raises(AssertionError, match="training has diverged"):
            train(size, **layout, train_iters=3)
    found = [line for line in capfd.readouterr().out.splitlines() if "first not finite" in line]
    assert len(found) == 1
    assert told in found[0]
    assert found[0].startswith(f"WARNING: iteration 2: first not finite: the {fault if layer else 'loss'}")
    # A rank of a tensor-parallel group is told by its values, which its peers have too.
    assert f"(rank {rank})" in found[0] or "model_parallel_size" in layout


@pytest.mark.ci
def test_a_fault_that_passes_is_said_to(train: Any, capfd: pytest.CaptureFixture[str], world: Any) -> None:
    """A gradient that was not finite once, and is when the iteration is run again, is not blamed on a layer."""
    from neoxlite.training.engine import Engine

    real = Engine.train_step

    def step(self: Any, batches: Any, iteration: int) -> Any:
        if iteration != 2:
            return real(self, batches, iteration)
        head = dict(self.module.named_parameters())["7.final_linear.weight"]
        handle = head.register_hook(lambda gradient: gradient / 0)
        try:
            return real(self, batches, iteration)
        finally:
            handle.remove()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "train_step", step)
        faulty = train(1, train_iters=4)
    assert "iteration 2: run again, it has only finite outputs and gradients" in capfd.readouterr().out
    assert [(event["iteration"], event["kind"]) for event in events_of(faulty, "not_finite")] == [(2, None)]
    # Looking changed nothing: the iterations before and behind are those of a run that left the step out.
    assert [entry["skipped"] for entry in faulty.metrics] == [0, 1, 0, 0]


# Phases


def test_phases_nest_and_the_innermost_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Communication inside the backward pass is not backward; a suspended block counts for nothing."""
    clock = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr(phases_module.time, "perf_counter", lambda: next(clock))
    phases = Phases(enabled=True)
    with phases(FORWARD):  # 0 to 1
        pass
    with phases(BACKWARD), phases(COMMUNICATION):  # 3 to 6, 6 to 10, 10 to 15
        pass
    with phases.suspended(), phases(FORWARD):
        pass
    assert phases.take() == {FORWARD: 1.0, BACKWARD: 3.0 + 5.0, COMMUNICATION: 4.0}
    assert phases.take() == {}


@pytest.mark.parametrize(("enabled", "waits"), [(False, 0), (True, 4)])
def test_the_device_is_waited_for_only_if_asked(enabled: bool, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step waits for a GPU by default; with wall_clock_breakdown each end of each phase does."""
    calls: list[None] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append(None))
    phases = Phases(torch.device("cuda"), enabled=enabled)
    with phases(FORWARD):
        pass
    with phases(BACKWARD):
        pass
    assert len(calls) == waits


@pytest.mark.parametrize(
    ("size", "layout"),
    [
        (2, {}),
        pytest.param(2, {"pipe_parallel_size": 2}, marks=pytest.mark.ci),
        pytest.param(2, {"model_parallel_size": 2, "zero_optimization": {"stage": 0}}, marks=pytest.mark.ci),
        pytest.param(2, {"zero_optimization": {"stage": 3}}, marks=pytest.mark.ci),
    ],
)
def test_wall_clock_breakdown_in_a_run(
    size: int, layout: dict[str, Any], train: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All phases have a time, together no more than the iteration; the losses are the same; GPT-NeoX's line appears."""
    plain = train(size, **layout, train_iters=3)
    assert all(entry["phases_ms"] is None for entry in plain.metrics)
    capfd.readouterr()
    run = train(size, **layout, train_iters=3, wall_clock_breakdown=True)
    assert run.losses == plain.losses
    for entry in run.metrics:
        times = entry["phases_ms"]
        assert set(times) == {"forward", "backward", "optimizer", "communication", "batch generator"}
        assert all(value > 0 for name, value in times.items() if name != "batch generator")
        assert sum(times.values()) <= entry["iteration_time_ms"] * 1.01
    assert capfd.readouterr().out.count("time (ms) | forward: ") == 3


# The loss at a resume


def test_what_is_a_jump() -> None:
    """Six deviations, a tenth of the mean, 0.1 nats: the largest counts; a few losses allow half of their mean."""
    assert limit_after([2.0] * 8) == pytest.approx(2.2)
    assert limit_after([0.05] * 8) == pytest.approx(0.15)
    noisy = [2.5, 3.5] * 4  # successive ones differ by 1, the deviation of a batch is 1 / sqrt(2)
    assert limit_after(noisy) == pytest.approx(3.0 + 6 * 0.70711, abs=1e-4)
    falling = [6.0 - 0.125 * number for number in range(32)]  # to 2.125; its fall is no spread
    assert limit_after(falling) == pytest.approx(2.5625 + 6 * 0.125 * 0.70711, abs=1e-4)
    assert limit_after([4.0]) == 6.0
    check_resumed_loss([2.0] * 8, 9, 2.19, "ck")
    check_resumed_loss([], 1, 99.0, "ck")
    for loss in (2.21, float("nan"), float("inf")):
        with pytest.raises(LossJumpError, match=r"at iteration 9, after a mean of 2\.0000 over"):
            check_resumed_loss([2.0] * 8, 9, loss, "ck")


def test_the_last_losses_go_through_checkpoints() -> None:
    """32 finite ones, each iteration once."""
    losses = RecentLosses([9.0] * 3, 3)
    losses.add(5, [1.0, 2.0])
    losses.add(6, [1.0, 2.0, float("nan")])
    assert losses.as_list() == [9.0, 9.0, 9.0, 1.0, 2.0]
    losses.add(46, [float(number) for number in range(40)])
    assert losses.as_list() == [float(number) for number in range(8, 40)]


@pytest.mark.ci
def test_weights_that_were_not_loaded_stop_the_run(train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run stops behind its first step with the reason; with the switch, and as finetune, it goes on."""
    from neoxlite.checkpoint import source

    optimizer = {"type": "Adam", "params": {"lr": 0.02, "betas": [0.9, 0.95], "eps": 1e-8}}
    where = {
        "save": str(tmp_path / "ck"),
        "load": str(tmp_path / "ck"),
        "checkpoint_factor": 30,
        "optimizer": optimizer,
    }
    first = train(1, **where, train_iters=30, lr_decay_iters=60)
    more = {**where, "train_iters": 32, "lr_decay_iters": 60}
    assert train(1, **{**more, "save": None, "checkpoint_factor": None}).losses[0] < 1.1 * first.losses[-1]
    monkeypatch.setattr(source, "load_weights", lambda *args: None)
    with pytest.raises(AssertionError, match="the loss jumped where the run was resumed"):
        train(2, **more)
    outcome = json.loads((tmp_path / "job2" / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["iteration"]) == ("failed", 31)
    elsewhere = {**more, "save": None, "checkpoint_factor": None}
    assert train(1, **elsewhere, checkpoint={"check_resumed_loss": False}).outcomes[0].outcome == "completed"
    assert train(1, **elsewhere, finetune=True).outcomes[0].outcome == "completed"

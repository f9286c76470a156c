"""Saves beside training: the same bytes as a blocking save, one at a time, and errors that reach every rank."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forked_worlds import TINY
from safetensors.torch import load_file

from neoxlite.checkpoint import background, save
from neoxlite.checkpoint.folder import find, saved_iterations
from neoxlite.checkpoint.manifest import Manifest
from neoxlite.checkpoint.share import TensorFile
from neoxlite.errors import CheckpointError
from neoxlite.parallel.topology import Topology

ASYNC = {"checkpoint": {"async_save": True}}


@pytest.mark.parametrize(
    ("size", "layout"),
    [
        (2, {}),
        pytest.param(2, {"zero_optimization": {"stage": 3}}, marks=pytest.mark.ci),
        pytest.param(2, {"pipe_parallel_size": 2}, marks=pytest.mark.ci),
        pytest.param(2, {"model_parallel_size": 2}, marks=pytest.mark.ci),
    ],
)
def test_the_checkpoints_are_those_of_a_blocking_save(
    size: int, layout: dict[str, Any], train: Any, tmp_path: Path
) -> None:
    """Losses are bit-identical, and so is every tensor; the last checkpoint is on the disk when the run ends."""
    roots = {name: tmp_path / name for name in ("at_once", "beside")}
    keys = {**layout, "checkpoint_factor": 2, "train_iters": 5}
    plain = train(size, **keys, save=str(roots["at_once"]))
    beside = train(size, **keys, **ASYNC, save=str(roots["beside"]))
    assert beside.losses == plain.losses
    assert [end.checkpoint for end in beside.outcomes] == [str(roots["beside"] / "global_step5")] * size
    for iteration in (2, 4, 5):
        one, other = (Manifest.read(root / f"global_step{iteration}") for root in roots.values())
        tensors = [name for name in one.files if name.endswith(".safetensors")]
        assert {name: one.files[name] for name in tensors} == {name: other.files[name] for name in tensors}
    assert (roots["beside"] / "latest").read_text() == "global_step5"
    assert not list(roots["beside"].glob(".*"))
    entries = [json.loads(line) for line in (beside.folder / "metrics.jsonl").read_text().splitlines()]
    assert [(e["iteration"], e["background"]) for e in entries if e.get("event") == "checkpoint"] == [
        (2, True),
        (4, True),
        (5, True),
    ]


def test_an_error_of_the_writer_ends_the_run_on_every_rank(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 cannot write in the background: both ranks stop with that message, and the older checkpoint is whole."""
    root = tmp_path / "ck"
    real = save.write_tensors

    def full(path: Path, tensors: Any) -> dict[str, int]:
        if os.environ["RANK"] == "1" and "global_step6" in str(path):
            raise OSError(28, "No space left on device")
        return real(path, tensors)

    monkeypatch.setattr(save, "write_tensors", full)
    with pytest.raises(AssertionError, match=r"rank 1: .*No space left on device"):
        train(2, **ASYNC, save=str(root), checkpoint_factor=3, train_iters=200, lr_decay_iters=200)
    outcome = json.loads((tmp_path / "job0" / "outcome.json").read_text())
    assert outcome["outcome"] == "failed"
    assert "No space left" in outcome["message"]
    assert outcome["checkpoint"] == str(root / "global_step3")
    assert saved_iterations(root) == [3]
    assert not list(root.glob(".*"))


@pytest.mark.ci
def test_a_kill_in_the_background_leaves_the_checkpoint_before(
    world: Any, train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL while the thread writes: the one before is the latest, and the next run goes on from it."""
    root = tmp_path / "ck"
    real = save.write_tensors

    def killed(path: Path, tensors: Any) -> dict[str, int]:
        if "global_step6" in str(path) and "layer_04" in path.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, tensors)

    with monkeypatch.context() as patch:
        patch.setattr(save, "write_tensors", killed)
        with pytest.raises(AssertionError, match="died with code -9"):
            train(1, **ASYNC, save=str(root), checkpoint_factor=3)
    folder = find(root)
    assert folder == root / "global_step3"
    assert Manifest.read(folder).damage(folder) == []
    assert list(root.glob(".global_step6*"))
    again = train(1, **ASYNC, save=str(root), load=str(root), checkpoint_factor=3)
    assert [entry["iteration"] for entry in again.metrics] == list(range(4, 11))
    assert saved_iterations(root) == [3, 6, 9, 10]
    assert not list(root.glob(".*"))


class _Saver(background.BackgroundSaver):
    """A saver of one tensor, which the test changes."""

    def __init__(self, tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_disk: list[Path] = []
        super().__init__(SimpleNamespace(topology=Topology(), device=torch.device("cpu")), self.on_disk.append)
        files = [TensorFile("layer_00.safetensors", {"weight": tensor})]
        monkeypatch.setattr(background, "share_of", lambda engine, *, with_optimizer: iter(files))


def _contents(iteration: int) -> save.Contents:
    return save.Contents({"iteration": iteration})


def test_training_goes_on_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is the state at the save, whatever training does to it before the disk is reached."""
    weights, go_on = torch.zeros(1000), threading.Event()
    saver = _Saver(weights, monkeypatch)
    real = save.write_tensors
    monkeypatch.setattr(save, "write_tensors", lambda *args: go_on.wait(240) and real(*args))
    saver.start(tmp_path, _contents(1))
    weights.fill_(5.0)
    assert saver.is_writing
    assert saver.finished() == []
    assert saver.on_disk == saved_iterations(tmp_path) == []
    go_on.set()
    saver.wait()
    assert saver.on_disk == [tmp_path / "global_step1"]  # before training asks: a run may end in between
    assert [done.iteration for done in saver.finished()] == [1]
    assert load_file(tmp_path / "global_step1" / "layer_00.safetensors")["weight"].sum() == 0
    assert saver.bytes == 4000  # the cost in memory: one copy, which the next save uses again
    saver.start(tmp_path, _contents(2))
    saver.wait()
    assert saver.bytes == 4000
    assert load_file(tmp_path / "global_step2" / "layer_00.safetensors")["weight"].sum() == 5000


def test_the_optimizer_s_step_waits_for_the_copies() -> None:
    """Whoever calls it, with whatever arguments: the wait comes first, and the result is the step's."""
    calls: list[Any] = []
    weight = torch.ones(1, requires_grad=True)
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.25)
    background._before_each_step(optimizer, lambda: calls.append(weight.item()))
    assert optimizer.step(lambda: 7.0) == 7.0
    optimizer.step()
    assert calls == [1.0, 0.75]


def _changes(ranks: Any, cfg: Any) -> list[bool]:
    """Train two steps; return, at each call before a step and behind all, whether the weights had changed since."""
    from neoxlite.model.naming import layer_parameters
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.sharding import value_of
    from neoxlite.parallel.topology import Grid, create_topology
    from neoxlite.training.create import create_engine

    warnings.simplefilter("ignore")  # of DeepSpeed; in a forked child, for its life only
    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(max(1, cfg.pipe_parallel_size), cfg.data_parallel_size, 1), ranks.rank)
    engine = create_engine(cfg, ModelSpec.from_config(cfg, 64), topology, torch.device("cpu"), None)

    def weights() -> list[torch.Tensor]:
        return [value_of(parameter, topology).clone() for _, parameter in layer_parameters(engine.module)]

    before, changed = [weights()], []

    def look() -> None:
        changed.append(any(not torch.equal(a, b) for a, b in zip(before[-1], weights(), strict=True)))
        before.append(weights())

    background._before_each_step(engine.optimizer, look)
    batch = torch.arange(cfg.train_micro_batch_size_per_gpu * (cfg.seq_length + 1)).view(-1, cfg.seq_length + 1) % 64
    for iteration in (1, 2):
        engine.set_lr(0.01)
        engine.train_step([batch] * cfg.gradient_accumulation_steps, iteration)
        before.append(weights())
    leave_world()
    return changed


@pytest.mark.ci
@pytest.mark.parametrize(
    ("size", "keys"),
    [
        *((1, {"zero_optimization": {"stage": stage}}) for stage in (0, 2, 3)),
        (1, {"zero_optimization": {"stage": 1, "implementation": "direct"}, "precision": "bfloat16"}),
        (1, {"zero_optimization": {"stage": 1, "implementation": "deepspeed"}, "precision": "bfloat16"}),
        (2, {"pipe_parallel_size": 2}),
    ],
)
def test_weights_change_in_the_optimizer_s_step_alone(
    size: int, keys: dict[str, Any], world: Any, tmp_path: Path
) -> None:
    """In every engine: forward and backward, beside which a GPU is copied from, leave them as they are."""
    from neoxlite.config import load_config

    path = tmp_path / "tiny.yml"
    path.write_text(json.dumps({**TINY, **keys}))
    for changed in world.run(size, _changes, load_config(path, world_size=size)):
        assert changed == [False, False]


def test_a_second_save_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never two at a time, and in their order."""
    saver = _Saver(torch.zeros(10), monkeypatch)
    writing, most = [0], [0]
    real = background.write

    def counted(*args: Any, **keywords: Any) -> Path:
        writing[0] += 1
        most[0] = max(most[0], writing[0])
        folder = real(*args, **keywords)
        writing[0] -= 1
        return folder

    monkeypatch.setattr(background, "write", counted)
    for iteration in range(1, 6):
        saver.start(tmp_path, _contents(iteration), keep_last=2)
    saver.close()
    assert most == [1]
    assert [done.iteration for done in saver.finished()] == [1, 2, 3, 4, 5]
    assert saved_iterations(tmp_path) == [4, 5]


def test_a_checkpoint_is_told_before_older_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that is ended during the removal, which may take long, would name one that is gone."""
    saver = _Saver(torch.zeros(10), monkeypatch)
    told: list[Path] = []
    monkeypatch.setattr(save, "remove_old", lambda *_: told.extend(saver.on_disk))
    saver.start(tmp_path, _contents(3), keep_last=1)
    saver.wait()
    assert told == [tmp_path / "global_step3"]


def test_an_error_is_raised_by_the_next_call_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`failed` tells of it at once; the save after the next one works again."""
    saver = _Saver(torch.zeros(10), monkeypatch)
    (tmp_path / "file").write_text("x")
    saver.start(tmp_path / "file", _contents(1))
    saver.close()
    assert saver.failed
    with pytest.raises(CheckpointError, match="could not be written"):
        saver.start(tmp_path / "ck", _contents(2))
    saver.start(tmp_path / "ck", _contents(2))
    saver.wait()
    assert saved_iterations(tmp_path / "ck") == [2]

"""SIGTERM and the stop file outside the steps: while a run is set up, and in its evaluations."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import train_rank

from neoxlite.checkpoint.folder import saved_iterations


def _sigterm_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, rank: int = 0) -> None:
    """Send this process SIGTERM when ``owner.name`` is called, on one rank; then go on with it."""
    real = getattr(owner, name)

    def signalled(*args: Any, **keywords: Any) -> Any:
        if int(os.environ.get("RANK", "0")) == rank:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([signal.SIGUSR1], 10 if rank == 0 else 0)  # a long wait in C, which rank 0 does not end
        return real(*args, **keywords)

    monkeypatch.setattr(owner, name, signalled)


@pytest.mark.parametrize("where", ["load_config", "build_datasets"])
def test_sigterm_while_a_run_is_set_up(
    where: str, world: Any, config_of: Any, text_data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process leaves at once with 86 and the outcome stopped, also from a wait in C, and gives the lock back."""
    from forked_worlds import command_rank

    import neoxlite.config
    from neoxlite.training import run_data

    config_of(1, data_path=text_data, save=str(tmp_path / "ck"), checkpoint_factor=5)
    _sigterm_in(monkeypatch, neoxlite.config if where == "load_config" else run_data, where)
    outcome = tmp_path / "outcome.json"
    arguments = ["train", str(tmp_path / "tiny.yml")]
    (child,) = world.start(1, command_rank, arguments, {"NEOXLITE_OUTCOME_FILE": str(outcome)})
    with pytest.raises(AssertionError, match="died with code 86"):
        child.result()
    child.end()
    assert json.loads(outcome.read_text()) == {
        "outcome": "stopped",
        "iteration": 0,
        "checkpoint": None,
        "message": "asked to end before training began",
    }
    assert not list(tmp_path.glob("ck/.*"))


def test_sigterm_to_another_rank_while_it_is_set_up(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 learns of it when the loop begins: both save after one iteration."""
    from neoxlite.training import run_data

    _sigterm_in(monkeypatch, run_data, "build_datasets", rank=1)
    run = train(2, save=str(tmp_path / "ck"), checkpoint_factor=5)
    assert [(end.outcome, end.iteration) for end in run.outcomes] == [("stopped", 1)] * 2
    assert saved_iterations(tmp_path / "ck") == [1]


LAYOUTS = [(2, {}), (2, {"pipe_parallel_size": 2})]


def _after_batches(monkeypatch: pytest.MonkeyPatch, count: int, stop: Any) -> None:
    """Call ``stop`` once, on rank 0, when ``count`` micro-batches have been made ready on it outside of steps."""
    from neoxlite.training.engine import Engine

    real, seen = Engine.inputs, []

    def counted(self: Any, batch: Any) -> Any:
        seen.append(self.deepspeed.module.training)
        if seen.count(False) == count and seen[-1] is False and self.topology.rank == 0:
            stop()
        return real(self, batch)

    monkeypatch.setattr(Engine, "inputs", counted)


@pytest.mark.parametrize(("size", "layout"), LAYOUTS)
def test_a_stop_file_in_an_evaluation(
    size: int, layout: dict[str, Any], train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen between batches: no validation is recorded, and the run ends where it was, saved."""
    _after_batches(monkeypatch, 3, lambda: (tmp_path / "job0" / "stop").write_text("walltime"))
    run = train(size, **layout, save=str(tmp_path / "ck"), checkpoint_factor=100, eval_interval=4, eval_iters=40)
    assert [(end.outcome, end.iteration, end.exit_code) for end in run.outcomes] == [
        ("saved_for_walltime", 4, 85)
    ] * size
    assert run.events == []
    assert saved_iterations(tmp_path / "ck") == [4]


def test_sigterm_in_the_evaluation_at_the_end(train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is complete and saved: the outcome is on the disk before the evaluation, and stays completed."""
    outcome = tmp_path / "job0" / "outcome.json"
    early: list[str] = []

    def stop() -> None:
        early.append(json.loads(outcome.read_text())["outcome"])
        (tmp_path / "early").write_text(early[0])
        os.kill(os.getpid(), signal.SIGTERM)

    _after_batches(monkeypatch, 3, stop)
    run = train(2, save=str(tmp_path / "ck"), checkpoint_factor=5, eval_iters=40)
    assert (tmp_path / "early").read_text() == "completed"
    assert [(end.outcome, end.exit_code) for end in run.outcomes] == [("completed", 0)] * 2
    written = json.loads(outcome.read_text())
    assert written["outcome"] == "completed"
    assert "evaluation at the end was skipped" in written["message"]
    assert run.events == []


def test_a_pipeline_s_validation_in_parts_is_that_of_the_whole(train: Any) -> None:
    """More micro-batches than a part holds: one process and two stages measure the same loss (4e-6, see topologies)."""
    changes = {"eval_iters": 15, "eval_interval": 5, "train_iters": 5}
    alone, piped = (train(size, **changes, pipe_parallel_size=size).events for size in (1, 2))
    assert len(alone) == len(piped) == 2
    for one, other in zip(alone, piped, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=4e-6)


def test_the_notes_of_a_configuration_are_printed_once(
    world: Any, config_of: Any, text_data: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 prints each note of the configuration as a line; a configuration without notes has none."""
    from neoxlite.training.environment import RunFiles

    cfg = config_of(2, data_path=text_data, train_iters=1)
    object.__setattr__(cfg, "notes", ["gradient_clipping: 1.0 is the norm over all ranks"])
    world.run(2, train_rank, cfg, RunFiles(), {})
    assert capfd.readouterr().out.splitlines().count("note: gradient_clipping: 1.0 is the norm over all ranks") == 1

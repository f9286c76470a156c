"""Where a run's numbers go: metrics.jsonl, TensorBoard, the warnings; and what validation must not disturb."""

from __future__ import annotations

import io
import json
import os
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked_worlds import tiny_config

from neoxlite.errors import NeoxliteError
from neoxlite.training.boards import TensorBoard, _quiet_threads
from neoxlite.training.environment import peak_tflops
from neoxlite.training.metrics import Costs, Interval, Recorder
from neoxlite.training.metrics_file import MetricsFile
from neoxlite.training.progress import ProgressLine
from neoxlite.training.recording import costs_of

COSTS = Costs(samples=8, tokens=256, flops=4e12, model_flops=3e12, world_size=2, peak_tflops=10.0)
CPU = torch.device("cpu")


def recorder(metrics: Path, board: str | None = None) -> Recorder:
    """Return a recorder of a run of 100 iterations."""
    line = ProgressLine(100, 0, stream=io.StringIO())
    return Recorder(
        train_iters=100,
        costs=COSTS,
        metrics=MetricsFile(metrics, print),
        boards=[TensorBoard(board, 0, print)] if board else [],
        progress=line,
    )


def interval(losses: list[float], norms: list[float], skipped: list[bool] | None = None, **more: Any) -> Interval:
    """Return an interval that ends at iteration 20 and took a second an iteration."""
    lrs = [0.1 * number for number in range(1, len(losses) + 1)]
    return Interval(20, float(len(losses)), losses, lrs, norms, skipped or [False] * len(losses), **more)


def test_an_entry_of_metrics_has_the_agreed_keys(tmp_path: Path) -> None:
    """One JSON object an interval, rates over all devices, TFLOP/s of one."""
    record = recorder(tmp_path / "deep" / "metrics.jsonl")
    more = {"data_wait_s": 0.5, "own_s": [0.2, 0.4, 0.3], "phases_s": {"forward": 0.5, "backward": 1.0}}
    record.interval(interval([3.0, 5.0], [1.0, 2.0], **more), CPU)
    record.validation("iteration 20", 20, 2.0)
    record.close()
    first, second = (json.loads(line) for line in (tmp_path / "deep" / "metrics.jsonl").read_text().splitlines())
    assert first.pop("time")
    assert first.pop("memory_mb").keys() == {"max resident"}
    assert first == {
        "iteration": 20,
        "train_iters": 100,
        "loss": 4.0,
        "lr": 0.2,
        "grad_norm": 2.0,
        "samples_per_s": 8.0,
        "tokens_per_s": 256.0,
        "iteration_time_ms": 1000.0,
        "data_wait_ms": 250.0,
        "tflops": 2.0,
        "model_tflops": 1.5,
        "mfu": pytest.approx(0.15),
        "hfu": pytest.approx(0.2),
        "loss_scale": None,
        "skipped": 0,
        "nan": 0,
        "own_ms": {"min": 200.0, "median": 300.0, "max": 400.0, "slowest_rank": 1},
        "phases_ms": {
            "forward": 250.0,
            "backward": 500.0,
            "optimizer": 0.0,
            "communication": 0.0,
            "batch generator": 250.0,
        },
    }
    assert (second["event"], second["iteration"], second["loss"]) == ("validation", 20, 2.0)
    assert second["perplexity"] == pytest.approx(np.exp(2.0))


def test_what_is_not_finite_is_reported_and_stays_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and infinity are named with their iterations; metrics.jsonl has null there, as JSON has no such numbers."""
    record = recorder(tmp_path / "metrics.jsonl")
    nan, inf = float("nan"), float("inf")
    record.interval(interval([3.0, nan, 5.0], [1.0, nan, inf], [False, False, True]), CPU)
    record.close()
    out = capsys.readouterr().out
    assert "WARNING: not finite at iteration 19 (loss, gradient norm), 20 (gradient norm)" in out
    assert "lm_loss: NAN | number of skipped iterations:   1 | number of nan iterations:   0 |" in out
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["loss"] is None


@pytest.mark.parametrize(
    ("of_key", "of_nodes", "device", "peak"),
    [
        (None, "989", "cuda", 989.0),
        (None, "989", "cpu", None),  # DS_ACCELERATOR=cpu on a node of GPUs: their peak is not the CPU's
        (312.0, "989", "cuda", 312.0),
        (0.5, "989", "cpu", 0.5),
        (None, "", "cuda", None),
    ],
)
def test_a_peak_belongs_to_a_device(
    of_key: float | None,
    of_nodes: str,
    device: str,
    peak: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The configuration's peak is taken as given, the job script's for GPUs alone: no MFU of another device's peak."""
    monkeypatch.setenv("NEOXLITE_PEAK_TFLOPS", of_nodes)
    cfg = tiny_config(tmp_path / "run.yml", peak_theoretical_tflops=of_key)
    assert costs_of(cfg, 64, torch.device(device)).peak_tflops == peak


@pytest.mark.parametrize("text", ["fast", "nan", "inf", "-989", "0"])
def test_a_peak_that_is_none(text: str) -> None:
    """One line with the variable and its value."""
    with pytest.raises(NeoxliteError, match=f"NEOXLITE_PEAK_TFLOPS='{text}' is not a peak"):
        peak_tflops({"NEOXLITE_PEAK_TFLOPS": text})


def test_tensorboard_has_gpt_neox_s_keys(tmp_path: Path) -> None:
    """Losses and rates of every iteration, speeds of every interval, validation: under GPT-NeoX's names."""
    record = recorder(tmp_path / "metrics.jsonl", str(tmp_path / "board"))
    record.interval(interval([3.0, 5.0], [1.0, 2.0]), CPU)
    record.validation("iteration 20", 20, 2.0)
    record.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "board"))
        events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "train/learning_rate",
        "train/lm_loss",
        "train/grad_norm",
        "runtime/samples_per_sec",
        "runtime/iteration_time",
        "runtime/steps_per_sec",
        "runtime/tokens_per_sec",
        "runtime/flops_per_sec_per_gpu",
        "runtime/model_flops_utilization",
        "runtime/hardware_flops_utilization",
        "validation/lm_loss",
        "validation/lm_loss_ppl",
    }
    assert [(event.step, event.value) for event in events.Scalars("train/lm_loss")] == [(19, 3.0), (20, 5.0)]
    # 4 TFLOP over two devices in a second, of a peak of 10; three quarters of them without recomputation.
    assert events.Scalars("runtime/hardware_flops_utilization")[0].value == pytest.approx(0.2)
    assert events.Scalars("runtime/model_flops_utilization")[0].value == pytest.approx(0.15)


def test_a_resumed_run_hides_what_lay_behind_its_checkpoint(tmp_path: Path) -> None:
    """TensorBoard shows one curve: iterations 1 to 3 of the first run, then those of the second."""
    first = TensorBoard(str(tmp_path), 0, print)
    first.log({iteration: {"train/lm_loss": 10.0 + iteration} for iteration in range(1, 6)})
    first.close()
    second = TensorBoard(str(tmp_path), 3, print)
    second.log({4: {"train/lm_loss": 4.0}})
    second.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path))
        events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/lm_loss")] == [
        (1, 11.0),
        (2, 12.0),
        (3, 13.0),
        (4, 4.0),
    ]


def test_a_tensorboard_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """One line with the key and the folder."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(NeoxliteError, match=r"tensorboard_dir: .*file/板 cannot be written"):
        TensorBoard(str(tmp_path / "file" / "板"), 0, print)


def test_a_tensorboard_folder_that_is_lost_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk, or a folder that somebody has removed: not the traceback of the thread that writes beside it."""
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    _quiet_threads.cache_clear()
    before = set(threading.enumerate())
    board = TensorBoard(str(tmp_path / "板"), 0, told.append)
    (writing,) = set(threading.enumerate()) - before
    board.log({1: {"train/lm_loss": 3.0}})
    shutil.rmtree(tmp_path / "板")
    for iteration in (2, 3):
        board.log({iteration: {"train/lm_loss": 3.0}})
    board.close()
    writing.join(240)
    other = threading.Thread(target=open, args=(tmp_path / "none",))
    other.start()
    other.join()
    shown = capsys.readouterr().err  # of other threads nothing is kept back
    assert (shown.count("Traceback"), shown.count("板"), other.name in shown) == (1, 0, True)
    _quiet_threads.cache_clear()
    assert told == [f"WARNING: {tmp_path / '板'} cannot be written, training continues without it: " + os.strerror(2)]


def test_validation_disturbs_nothing_and_is_the_same_after_a_resume(train: Any, tmp_path: Path) -> None:
    """With dropout, losses are equal with and without validation; a resumed run validates on the same samples."""
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    validation = {"eval_interval": 3, "eval_iters": 2}
    plain = train(1, **dropout)
    unbroken = train(1, **dropout, **validation)
    assert unbroken.losses == plain.losses

    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 5}
    train(1, **dropout, **validation, **where)
    resumed = train(1, **dropout, **validation, **where, iteration=5)
    whole, later = ({entry["at"]: entry["loss"] for entry in run.events} for run in (unbroken, resumed))
    assert list(whole) == [
        "iteration 3",
        "iteration 6",
        "iteration 9",
        "the end of training for val data",
        "the end of training for test data",
    ]
    assert later.items() <= whole.items()
    assert len(later) == 4
    assert whole["iteration 3"] != whole["iteration 6"]


@pytest.mark.parametrize(("stage", "precision"), [(0, "fp32"), (1, "fp32"), (1, "bfloat16")])
def test_a_gradient_that_is_not_finite_is_skipped(stage: int, precision: str, world: Any, config_of: Any) -> None:
    """The step is counted as skipped, reported as not finite, and changes no weight; the next one is taken."""
    cfg = config_of(precision=precision, zero_optimization={"stage": stage})
    before, after, norm, skipped, next_skipped = world.run(1, _step_with_infinity, cfg)[0]
    assert skipped
    assert not np.isfinite(norm)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert not next_skipped


def _step_with_infinity(ranks: Any, cfg: Any) -> Any:
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world
    from neoxlite.parallel.topology import Topology
    from neoxlite.training.engine import Engine

    join_world(ranks, CPU)
    spec = ModelSpec.from_config(cfg, 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    engine = Engine(cfg, model, Topology(), CPU, None)
    batch = np.random.default_rng(0).integers(0, 64, (2, 33))

    def weights() -> dict[str, np.ndarray]:
        return {name: value.detach().float().numpy().copy() for name, value in engine.module.named_parameters()}

    head = dict(engine.module.named_parameters())["7.final_linear.weight"]
    engine.set_lr(1e-3)
    before = weights()
    handle = head.register_hook(lambda gradient: gradient * float("inf"))
    step = engine.train_step([batch, batch], 1)
    after = weights()
    handle.remove()
    return before, after, float(step.grad_norm), step.skipped, engine.train_step([batch, batch], 1).skipped

"""Whole trainings on one GPU: precisions, ZeRO stages, offload, the loss scale, checkpoints.

Every run is a command of its own, as a user starts it, and all begin at once: a GPU has room for them, and most of a
run is the import of torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from forked_worlds import TINY, read_metrics

pytestmark = pytest.mark.gpu

_MODEL: dict[str, Any] = {
    **TINY,
    "hidden_size": 64,
    "seq_length": 64,
    "max_position_embeddings": 64,
    "train_micro_batch_size_per_gpu": 4,
    "train_iters": 20,
    "kernels": {"compile_blocks": False},
}
_BF16: dict[str, Any] = {"precision": "bfloat16"}
_FP16: dict[str, Any] = {"fp16": {"enabled": True, "initial_scale_power": 12, "loss_scale_window": 6}}
_OVERFLOWING: dict[str, Any] = {"fp16": {"enabled": True, "initial_scale_power": 30, "loss_scale_window": 4}}


def _stage(number: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": number, **more}}


_CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
RUNS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32", **_stage(0)},
    **{f"bf16 {number}": {**_BF16, **_stage(number)} for number in (0, 2, 3)},
    "bf16 deepspeed": {**_BF16, **_stage(1, implementation="deepspeed")},
    "bf16 direct": {**_BF16, **_stage(1, implementation="direct"), "kernels": {}},
    "bf16 offload": {**_BF16, **_stage(2, **_CPU)},
    "fp32 offload": {"precision": "fp32", **_stage(1, **_CPU)},
    **{f"fp16 {number}": {**_FP16, **_stage(number)} for number in (0, 1, 2, 3)},
    "fp16 offload": {**_FP16, **_stage(3, **_CPU)},
    "fp16 fp32 sums": {**_FP16, **_stage(2), "data_types": {"grad_accum_dtype": "fp32"}, "fp32_allreduce": True},
    "selective": {**_BF16, **_stage(2), "checkpoint_activations": True, "recompute_granularity": "selective"},
    "on the host": {**_BF16, **_stage(2), "checkpoint_activations": True, "checkpoint_in_cpu": True},
    "unbroken": {**_OVERFLOWING, **_stage(2), "train_iters": 40},
    "first half": {**_OVERFLOWING, **_stage(2), "train_iters": 25, "lr_decay_iters": 40, "save": "@halves"},
}
_SECOND_HALF = {**_OVERFLOWING, **_stage(2), "train_iters": 40, "save": "@halves", "load": "@halves"}


class Runs:
    """Commands that train, by name."""

    def __init__(self, folder: Path, data: str):
        self._folder = folder
        self._data = data
        self._running: dict[str, tuple[subprocess.Popen[str], Path]] = {}

    def start(self, name: str, keys: dict[str, Any]) -> None:
        """Begin a run."""
        folder = self._folder / name.replace(" ", "_")
        folder.mkdir()
        placed = {
            key: str(self._folder / value[1:]) if isinstance(value, str) and value.startswith("@") else value
            for key, value in keys.items()
        }
        saving = {"checkpoint_factor": 1000} if "save" in keys else {}
        path = folder / "run.yml"
        path.write_text(yaml.safe_dump({**_MODEL, "data_path": self._data, **placed, **saving}), encoding="utf-8")
        environ = {word: value for word, value in os.environ.items() if word not in ("DS_ACCELERATOR", "RANK")}
        environ["NEOXLITE_METRICS_FILE"] = str(folder / "metrics.jsonl")
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "neoxlite", "train", str(path)], env=environ, stdout=log, stderr=log, text=True
            )
        self._running[name] = process, folder

    def metrics(self, name: str) -> list[Any]:
        """Wait for a run, and return its intervals."""
        process, folder = self._running[name]
        code = process.wait(timeout=280)
        text = (folder / "log").read_text()
        assert code == 0, text
        return [entry for entry in read_metrics(folder / "metrics.jsonl") if "event" not in entry]

    def log(self, name: str) -> str:
        """Return what a finished run printed."""
        return (self._running[name][1] / "log").read_text()

    def end(self) -> None:
        """Kill what still runs."""
        for process, _ in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def runs(text_data: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Return all runs, begun."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    started = Runs(tmp_path_factory.mktemp("gpu"), text_data)
    try:
        for name, keys in RUNS.items():
            started.start(name, keys)
        yield started
    finally:
        started.end()


def _losses(entries: list[Any]) -> npt.NDArray[np.float64]:
    """Return the loss of each interval, NaN where its step was skipped."""
    return np.array([entry["loss"] for entry in entries], dtype=np.float64)


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith(("bf16", "selective", "on the host"))])
def test_bf16(name: str, runs: Runs) -> None:
    """ZeRO 0 (which becomes 1) to 3, both optimizers, offload, recomputation: the fp32 curve within bf16's rounding."""
    losses = _losses(runs.metrics(name))
    np.testing.assert_allclose(losses, _losses(runs.metrics("fp32")), rtol=1e-2)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("fp16")])
def test_fp16(name: str, runs: Runs) -> None:
    """ZeRO 0 (which becomes 1) to 3, offload, sums in fp32: the fp32 curve, while the scale doubles every six steps."""
    entries = runs.metrics(name)
    losses = _losses(entries)
    np.testing.assert_allclose(losses, _losses(runs.metrics("fp32")), rtol=3e-3)
    assert losses[-1] < 0.9 * losses[0]
    assert [entry["loss_scale"] for entry in entries] == [2.0 ** (12 + step // 6) for step in range(20)]
    assert "loss scale: 4096.0 |" in runs.log(name)


def test_fp32_offload(runs: Runs) -> None:
    """The optimizer on the host takes the GPU's steps, to the rounding of the GPU's products."""
    np.testing.assert_allclose(_losses(runs.metrics("fp32 offload")), _losses(runs.metrics("fp32")), rtol=1e-4)


def test_overflow_and_checkpoint(runs: Runs) -> None:
    """A scale that overflows: steps skipped, the scale halved each time; a resumed run goes on with scale and loss."""
    unbroken = runs.metrics("unbroken")
    skipped = [entry["skipped"] for entry in unbroken]
    lost = skipped.index(0)
    assert 2 <= lost < 20
    assert [entry["loss_scale"] for entry in unbroken[:lost]] == [2.0 ** (30 - step) for step in range(lost)]
    assert "iteration 2: the gradient overflowed, the step was skipped; loss scale: 536870912.0" in runs.log("unbroken")
    first = runs.metrics("first half")
    runs.start("second half", _SECOND_HALF)
    second = runs.metrics("second half")
    assert second[0]["iteration"] == 26
    assert [entry["loss_scale"] for entry in first + second] == [entry["loss_scale"] for entry in unbroken]
    np.testing.assert_allclose(_losses(second), _losses(unbroken[25:]), rtol=3e-3)

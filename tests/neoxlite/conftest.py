"""Fixtures for tests of the trainer. Importing this file imports no torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_worlds import Event, Trained, World, command_rank, read_metrics, tiny_config, train_rank, write_dataset

# One thread a process: the tests run side by side, and a forked child must not inherit a thread pool's locks.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["DS_ACCELERATOR"] = "cpu"


@pytest.fixture(scope="session")
def deepspeed_ready() -> None:
    """Import torch and DeepSpeed once, as the trainer does; forked children then start at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import torch._dynamo
        import torch.distributed.tensor
        import torch.utils.tensorboard

        from neoxlite.parallel.distributed import prepare

        torch.set_num_threads(1)
        prepare(torch.device("cpu"))
        import deepspeed
        import deepspeed.module_inject.auto_ep_layer  # noqa: F401

        import neoxlite.training.trainer  # noqa: F401


@pytest.fixture(scope="session")
def world(deepspeed_ready: None) -> World:
    """Return the way to run functions on forked ranks."""
    return World()


@pytest.fixture
def config_of(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that resolves ``TINY`` with changes for a world size."""
    return lambda world_size=1, /, **changes: tiny_config(tmp_path / "tiny.yml", world_size, **changes)


@pytest.fixture(scope="session")
def text_data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the prefix of a small dataset of bytes, for CharLevelTokenizer, written in Megatron's .bin/.idx layout."""
    prefix = tmp_path_factory.mktemp("data") / "text"
    rng = np.random.default_rng(0)
    lines = [f"def f{number}(x):\n    return x + {number}\n" for number in range(200)]
    documents = [np.frombuffer((line * int(rng.integers(1, 12))).encode(), dtype=np.uint8) for line in lines]
    write_dataset(prefix, [document.astype(np.uint16) for document in documents])
    return str(prefix)


@pytest.fixture
def train(world: World, config_of: Callable[..., Any], text_data: str, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a whole training in forked ranks and returns (outcome, metrics of that run)."""
    counter = iter(range(1000))

    def run_training(size: int = 1, /, *, at: Mapping[int, Event] | None = None, **changes: Any) -> Any:
        from neoxlite.training.environment import RunFiles

        folder = tmp_path / f"job{next(counter)}"
        folder.mkdir()
        files = RunFiles(folder / "stop", folder / "outcome.json", folder / "metrics.jsonl")
        cfg = config_of(size, **{"data_path": text_data, **changes})
        outcomes = world.run(size, train_rank, cfg, files, at or {})
        entries = read_metrics(files.metrics)
        steps = [entry for entry in entries if "event" not in entry]
        return Trained(
            outcomes, steps, [entry for entry in entries if entry.get("event") in ("validation", "test")], folder
        )

    return run_training


@pytest.fixture
def command(world: World) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs ``neoxlite ARGUMENTS`` in a forked process: (exit code, stdout, stderr)."""

    def run_command(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        return world.run(1, command_rank, list(arguments), dict(environ or {}))[0]

    return run_command

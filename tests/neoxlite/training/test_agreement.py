"""Ranks that were not started alike: told by name before they wait for each other or train towards different ends."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked_worlds import TINY, train_rank, write_dataset
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from neoxlite.errors import ConfigError, NeoxliteError
from neoxlite.parallel.distributed import PeerLostError
from neoxlite.training.agreement import differences
from neoxlite.training.environment import RunFiles
from neoxlite.training.first_voice import rank_0_speaks_first


def test_differences_name_who_has_what() -> None:
    """One line for each thing: the value, the first rank that has it and its host, and how many more."""
    alike = {"torch": "2.9", "seed": "1"}
    assert differences([("a", alike)] * 3) == []
    assert differences([("a", alike), ("a", alike), ("b", {"torch": "2.8", "seed": "1"}), ("c", {"torch": "2.9"})]) == [
        "torch is 2.9 on rank 0 (a) and 2 more, 2.8 on rank 2 (b)",
        "seed is 1 on rank 0 (a) and 2 more, not set on rank 3 (c)",
    ]
    long = [{"x": "y" * 99 + end} for end in "12"]
    (line,) = differences([("a", long[0]), ("b", long[1])])
    assert line.count("checksum") == 2
    assert len(line) < 250


def _start_nodes(ranks: Any, configs: list[Any], folders: list[Path]) -> str:
    return _start(dataclasses.replace(ranks, local_rank=0), configs, folders)


def _start(ranks: Any, configs: list[Any], folders: list[Path]) -> str:
    os.chdir(folders[ranks.rank])
    with pytest.raises(NeoxliteError) as caught:
        train_rank(ranks, configs[ranks.rank], RunFiles(None, None, None), {})
    return f"{caught.value.message}\n{caught.value.hint}"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"train_iters": 6}, "train_iters is 10 on rank 0 (*), 6 on rank 1 (*)"),  # hung until the time-out
        (  # trained, each rank with its own
            {"optimizer": {"type": "Adam", "params": {**TINY["optimizer"]["params"], "lr": 0.02}}},
            "optimizer.params.lr is 0.002 on rank 0 (*), 0.02 on rank 1 (*)",
        ),
    ],
)
def test_other_configurations_on_some_ranks(
    changes: dict[str, Any], told: str, world: Any, config_of: Callable[..., Any], text_data: str, tmp_path: Path
) -> None:
    """Every rank raises the same error, with the key; where a node keeps its files may differ."""
    configs = [
        config_of(2, data_path=text_data, tensorboard_dir=f"tb{rank}", **(changes if rank else {})) for rank in range(2)
    ]
    first, second = world.run(2, _start, configs, [tmp_path] * 2)
    assert first == second
    assert first.startswith(f"the ranks differ: {told}\nstart all ranks with".replace("*", socket.gethostname()))


def test_other_data_on_some_nodes(world: Any, config_of: Callable[..., Any], tmp_path: Path) -> None:
    """A relative path that leads to another dataset on one of two nodes."""
    for name, length in (("a", 50), ("b", 51)):
        (tmp_path / name).mkdir()
        write_dataset(tmp_path / name / "text", [np.arange(40, 40 + length, dtype=np.uint16)] * 40)
    cfg = config_of(2, data_path="text")
    first, second = world.run(2, _start, [cfg] * 2, [tmp_path / "a", tmp_path / "b"])
    assert first == second
    assert first.startswith("the ranks differ: the training data (digest) is ")
    assert first.endswith("give absolute ones, to what all nodes share or have alike")


def test_a_save_folder_that_is_not_shared(
    world: Any, config_of: Callable[..., Any], text_data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before the first step: the first save could not be written, thousands of iterations later."""
    monkeypatch.setattr("neoxlite.training.agreement._SEEN_WITHIN_S", 0.0)
    monkeypatch.setattr(socket, "gethostname", lambda: "node")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    cfg = config_of(2, data_path=text_data, save="ck", checkpoint_factor=1)
    first, second = world.run(2, _start_nodes, [cfg] * 2, [tmp_path / "a", tmp_path / "b"])
    assert first == second
    assert first.startswith(
        "save: ck is not the same folder on all nodes: rank 1 (node) does not see what rank 0 (node)"
    )


def test_rank_0_is_the_first_to_tell_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait, for launchers to end them: with 64 ranks a wrong key is told once. What is no mistake of the user
    passes at once."""
    waits: list[float] = []
    told = tmp_path / "error.json"  # for torchrun's page: not of those that are ended in their wait

    def wait(seconds: float) -> None:
        waits.append(seconds)
        assert not told.exists()

    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(told))
    monkeypatch.setattr("neoxlite.training.first_voice.time.sleep", wait)
    for rank, error in ((0, ConfigError("x")), (1, ConfigError("x")), (1, ValueError("x"))):
        with pytest.raises(type(error)), rank_0_speaks_first(rank):
            raise error
        told.unlink()
    assert waits == [5.0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ConfigError("seq_length: 語 is wrong", hint="give a number"),
            "neoxlite: seq_length: 語 is wrong\n  give a number",
        ),
        (MemoryError("${no} room\nat all"), "MemoryError: ${no} room"),
        (PeerLostError("rank 0 lost the other ranks"), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_torchrun_s_page_ends_with_the_error(
    error: BaseException, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch itself reads and shows it; a rank that only lost the others is not the first to fail."""
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with pytest.raises(type(error)), rank_0_speaks_first(0):
        raise error
    assert path.exists() is (told is not None)
    failed = ProcessFailure(local_rank=1, pid=10, exitcode=2, error_file=str(path))
    later = ProcessFailure(local_rank=0, pid=11, exitcode=-15, error_file="")
    later.timestamp += 5
    page = ChildFailedError("neoxlite", {0: later, 1: failed}).format_msg()
    assert page.rstrip("=").endswith(f"  traceback : {told or failed.message}\n")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "error.json"))
    with pytest.raises(type(error)), rank_0_speaks_first(0):
        raise error


def test_gpus_that_torch_does_not_see(deepspeed_ready: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver or a build of torch that does not fit trains on the CPU: no longer without a word."""
    import torch

    from neoxlite.training.entry import gpus_left_unused

    monkeypatch.delenv("DS_ACCELERATOR")
    cpu = torch.device("cpu")
    (tmp_path / "nvidiactl").touch()
    assert gpus_left_unused(cpu, tmp_path) is None
    (tmp_path / "nvidia0").touch()
    told = gpus_left_unused(cpu, tmp_path)
    assert told is not None
    assert f"has GPUs, but torch {torch.__version__} sees none" in told
    assert gpus_left_unused(torch.device("cuda", 0), tmp_path) is None
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert gpus_left_unused(cpu, tmp_path) is None

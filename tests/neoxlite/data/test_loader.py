"""From a configuration to micro-batches: upstream's order, exact resumption, the same samples in any layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import NeoxConfig, load_config
from neoxlite.data import MicroBatches, build_datasets, samples_wanted, valid_start_batch
from neoxlite.data.build import DataSettings
from neoxlite.errors import DataError

NAMES = [
    "dp1_gas1",
    "dp1_gas2",
    "dp2_rank0",
    "dp2_rank1",
    "resume_7_gas2",
    "resume_wrap",
    "valid_resume_gas4",
    "weighted",
    "weight_by_num_documents",
]


def _config(case: dict[str, Any], copied: Callable[[str, str], str], tmp_path: Path) -> NeoxConfig:
    """Read the recorded case as a configuration file."""
    datasets = {"d": copied("u16_rand", "d"), "m": copied("u16_merged", "m")}
    keys = dict(case["config"])
    if isinstance(case["data"], str):
        keys["data_path"] = datasets["d"]
    else:
        keys |= {f"{part}_data_paths": [datasets[name] for name in case["data"]] for part in ("train", "valid", "test")}
    (tmp_path / "case.yml").write_text(json.dumps(keys), encoding="utf-8")
    return load_config(tmp_path / "case.yml", allow_unsupported=True)


@pytest.mark.parametrize("name", NAMES)
def test_order_equals_upstreams(
    name: str, golden_json: Callable[[str], Any], copied: Callable[[str, str], str], tmp_path: Path
) -> None:
    """Lengths and micro-batches of every rank, gas, resume and mixture recorded."""
    case = next(case for case in golden_json("loader/loader.json")["cases"] if case["name"] == name)
    cfg = _config(case, copied, tmp_path)
    sets = build_datasets(cfg)
    for part, told in case["parts"].items():
        dataset = getattr(sets, part)
        if told is None:
            assert dataset is None
            continue
        loader = MicroBatches(
            dataset,
            cfg.train_micro_batch_size_per_gpu,
            case["data_parallel_rank"],
            case["data_parallel_size"],
            told["start_iter"],
        )
        assert (len(dataset), loader.batches) == (told["dataset_len"], told["loader_len"])
        rows = told["row_first3_last1"]
        # Behind the last batch upstream goes back to where it was resumed; here to batch 0 (tested below).
        same = min(len(rows), loader.batches - told["start_iter"]) if told["start_iter"] else len(rows)
        batches = list(islice(loader, same))
        if told["first_batch"] is not None:
            np.testing.assert_array_equal(batches[0], told["first_batch"])
        for batch, row in zip(batches, rows[:same], strict=True):
            np.testing.assert_array_equal(np.concatenate((batch[:, :3], batch[:, -1:]), axis=1), row)


def test_training_position_of_upstream(golden_json: Callable[[str], Any]) -> None:
    """The batches done are iterations x accumulation steps, modulo the data, as upstream counts them."""
    for case in golden_json("loader/loader.json")["cases"]:
        gas = case["config"].get("gradient_accumulation_steps", 1)
        train = case["parts"]["train"]
        assert case["iteration"] * gas % train["loader_len"] == train["start_iter"]


def test_validation_position() -> None:
    """Each validation reads eval_iters global batches; upstream agrees where there is no accumulation."""
    settings = {"eval_interval": 5, "eval_iters": 2}
    assert valid_start_batch(4, gradient_accumulation_steps=1, **settings) == 0
    assert valid_start_batch(12, gradient_accumulation_steps=1, **settings) == 4
    assert valid_start_batch(12, gradient_accumulation_steps=3, **settings) == 12


class Numbers:
    """Samples whose only token is their number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        return np.array([number])


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 60), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]), st.integers(0, 40), st.integers(1, 9))
def test_resumed_equals_unbroken(size: int, micro: int, ranks: int, stop: int, more: int) -> None:
    """A loader made at the position of another reads on as that one would, across any number of passes."""
    if size < micro * ranks:
        with pytest.raises(DataError, match=f"{size} samples, fewer than one batch"):
            MicroBatches(Numbers(size), micro, 0, ranks)
        return
    unbroken = MicroBatches(Numbers(size), micro, ranks - 1, ranks)
    for _ in range(stop):
        next(unbroken)
    assert unbroken.position == stop
    resumed = MicroBatches(Numbers(size), micro, ranks - 1, ranks, start_batch=unbroken.position)
    for _ in range(more):
        np.testing.assert_array_equal(next(unbroken), next(resumed))
    assert unbroken.position == resumed.position == stop + more


@settings(deadline=None, derandomize=True)
@given(
    st.sampled_from([(1, 8, 1), (2, 4, 1), (8, 1, 1), (1, 1, 8), (2, 2, 2), (4, 1, 2), (1, 4, 2)]), st.integers(8, 64)
)
def test_steps_are_the_same_in_every_layout(layout: tuple[int, int, int], size: int) -> None:
    """For one global batch size, step k reads samples 8k to 8k + 7 under any (micro, accumulation, dp)."""
    micro, gas, ranks = layout
    loaders = [MicroBatches(Numbers(size), micro, rank, ranks) for rank in range(ranks)]
    for step in range(size // 8):
        samples = [int(token) for loader in loaders for _ in range(gas) for token in next(loader).ravel()]
        assert sorted(samples) == list(range(8 * step, 8 * step + 8))


def test_tokens_outside_the_vocabulary() -> None:
    """A dataset of another tokenizer is named before the embedding fails on it."""
    loader = MicroBatches(Numbers(10), 2, vocab_size=5)
    next(loader)
    next(loader)
    with pytest.raises(DataError, match="batch 2 holds the tokens 4 to 5, but the vocabulary has 5"):
        next(loader)
    assert loader.position == 2


def _settings(**keys: Any) -> DataSettings:
    defaults: dict[str, Any] = {f"{part}_data_paths": None for part in ("train", "valid", "test")}
    defaults |= {f"{part}_data_weights": None for part in ("train", "valid", "test")}
    defaults |= {"data_path": None, "split": "969, 30, 1", "seq_length": 16, "seed": 1234}
    defaults |= {"train_iters": 10, "eval_interval": 5, "eval_iters": 2, "train_batch_size": 4}
    return SimpleNamespace(**(defaults | keys))


def test_samples_wanted_by_hand() -> None:
    """train_iters x B; (train_iters // eval_interval + 1) x eval_iters x B; eval_iters x B."""
    assert samples_wanted(_settings()) == (40, 24, 8)
    assert samples_wanted(_settings(eval_interval=1000)) == (40, 8, 8)


def test_describe(copied: Callable[[str, str], str]) -> None:
    """Documents, tokens, epochs and samples of every split; the counts are those of the recorded run."""
    prefix = copied("u16_rand", "日本語 text")
    lines = build_datasets(_settings(data_path=prefix)).describe().splitlines()
    assert lines[0].split() == ["split", "dataset", "weight", "documents", "tokens", "epochs", "samples"]
    assert lines[1].split()[-5:] == ["1", "291", "8,825", "1", "550"]
    assert lines[2].split()[-5:] == ["1", "9", "280", "2", "33"]
    assert prefix in lines[1]


def test_barrier_is_reached_once_by_everyone(copied: Callable[[str, str], str]) -> None:
    """All index files stand when the builder reaches the barrier, and nobody waits twice."""
    cfg = _settings(data_path=copied("u16_rand", "d"))
    folder = Path(str(cfg.data_path)).parent
    found: list[int] = []
    build_datasets(cfg, is_builder=False, wait=lambda: found.append(len(list(folder.glob("*.indexmap")))))
    build_datasets(cfg, wait=lambda: found.append(len(list(folder.glob("*.indexmap")))))
    assert found == [0, 2]
    reached: list[int] = []
    with pytest.raises(DataError, match="no dataset"):
        build_datasets(_settings(data_path="/nowhere/at/all"), wait=lambda: reached.append(1))
    assert reached == [1]


def test_only_some_lists(copied: Callable[[str, str], str]) -> None:
    """Lists of paths may leave out a split; without weights all weigh the same."""
    prefix = copied("u16_rand", "d")
    sets = build_datasets(_settings(train_data_paths=[prefix, prefix]))
    assert sets.train is not None
    assert (sets.valid, sets.test) == (None, None)
    assert [source.weight for source in sets.sources] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no data: neither data_path nor train_data_paths is set"),
        ({"data_path": "x", "train_data_paths": ["y"]}, "are both set"),
        ({"data_path": "PREFIX", "split": "0,0"}, "split: '0,0'"),
        ({"data_path": "PREFIX", "train_iters": None}, "train_iters is not set"),
        ({"train_data_paths": ["PREFIX"], "train_data_weights": [1, 2]}, "train_data_weights has 2 weights for 1"),
        ({"train_data_paths": ["PREFIX"], "train_data_weights": [0]}, "train_data_weights: "),
        ({"data_path": "PREFIX", "seed": -4}, "PREFIX, train: seed is -4"),
    ],
)
def test_refused_settings(keys: dict[str, Any], message: str, copied: Callable[[str, str], str]) -> None:
    """Keys that do not fit are named."""
    prefix = copied("u16_rand", "d")
    filled = json.loads(json.dumps(keys).replace("PREFIX", prefix))
    with pytest.raises(DataError, match=message.replace("PREFIX", prefix)):
        build_datasets(_settings(**filled))


def test_empty_dataset(written: Callable[..., str]) -> None:
    """A dataset without documents in a list is named; as data_path all splits are absent."""
    prefix = written([])
    with pytest.raises(DataError, match="has no documents"):
        build_datasets(_settings(train_data_paths=[prefix]))
    assert build_datasets(_settings(data_path=prefix)).train is None

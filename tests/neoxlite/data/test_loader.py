"""From a configuration to micro-batches: upstream's order, exact resumption, the same samples in any layout."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import NeoxConfig, load_config
from neoxlite.data import (
    MicroBatches,
    PrefetchedBatches,
    build_datasets,
    epoch_iterations,
    samples_wanted,
    valid_start_batch,
)
from neoxlite.data.build import DataSettings
from neoxlite.data.pinned import pinned
from neoxlite.data.preprocess import Options, tokenize_files
from neoxlite.errors import DataError
from neoxlite.tokenizers import build_tokenizer

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


@settings(deadline=None, derandomize=True)
@given(st.integers(40, 90), st.integers(0, 200), st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2]))
def test_resume_at_a_sample(size: int, consumed: int, micro: int, ranks: int) -> None:
    """With any batch size a run goes on at the sample behind the last one, and skips and repeats none of a pass."""
    loaders = [MicroBatches(Numbers(size), micro, rank, ranks, start_sample=consumed) for rank in range(ranks)]
    steps = 2 * loaders[0].batches
    read = [int(token) for _ in range(steps) for loader in loaders for token in next(loader).ravel()]
    whole_pass = size // (micro * ranks) * micro * ranks
    assert read == [number % whole_pass for number in range(consumed, consumed + steps * micro * ranks)]
    assert loaders[0].consumed_samples == consumed + len(read)


def test_a_changed_batch_size_continues() -> None:
    """Ten steps of 8, then of 12, read samples 0 to 80 and 80 to 128."""
    before = MicroBatches(Numbers(1000), 8)
    first = [int(token) for _ in range(10) for token in next(before).ravel()]
    after = MicroBatches(Numbers(1000), 12, start_sample=before.consumed_samples)
    rest = [int(token) for _ in range(4) for token in next(after).ravel()]
    assert first + rest == list(range(128))


def test_prefetched_batches() -> None:
    """A thread reads ahead; what is handed out is the same, and the position counts what was handed out."""
    plain = MicroBatches(Numbers(50), 4)
    expected = [next(plain).tolist() for _ in range(20)]
    on_cpu = functools.partial(pinned, device=torch.device("cpu"))
    with PrefetchedBatches(MicroBatches(Numbers(50), 4), on_cpu, depth=3) as ahead:
        for number, batch in enumerate(expected):
            assert ahead.consumed_samples == 4 * number
            tensor = next(ahead)
            assert tensor.dtype == torch.int64
            assert tensor.tolist() == batch
        assert ahead.take_wait_s() >= 0
        resumed = MicroBatches(Numbers(50), 4, start_sample=ahead.consumed_samples)
        assert next(resumed).tolist() == next(ahead).tolist()


class Slow(Numbers):
    """Samples that each need a signal, and of which the fifth cannot be read."""

    def __init__(self) -> None:
        super().__init__(10)
        self.allowed = threading.Semaphore(0)
        self.read: list[int] = []

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        self.allowed.acquire()
        if number == 4:
            raise DataError("sample 4 is damaged")
        self.read.append(number)
        return super().__getitem__(number)


def allow_when_waited_for(ahead: PrefetchedBatches[int], slow: Slow) -> None:
    """Let the first sample be read only once the consumer waits for it."""
    ready = ahead._ahead._ready
    get = ready.get

    def waiting_get(block: bool = True, timeout: float | None = None) -> Any:
        if block:
            slow.allowed.release()
        return get(block, timeout)

    ready.get = waiting_get


def test_prefetching_waits_and_fails_where_it_should() -> None:
    """Waiting is measured, reading ahead is bounded, and an error comes with the batch that has it, each time asked."""
    slow = Slow()
    with PrefetchedBatches(MicroBatches(slow, 1), lambda batch: int(batch[0, 0]), depth=2) as ahead:
        allow_when_waited_for(ahead, slow)
        assert next(ahead) == 0
        assert ahead.take_wait_s() > 0
        assert ahead.take_wait_s() == 0
        slow.allowed.release(100)
        deadline = time.monotonic() + 240
        while len(slow.read) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert slow.read == [0, 1, 2, 3]
        assert [next(ahead) for _ in range(3)] == [1, 2, 3]
        for _ in range(2):
            with pytest.raises(DataError, match="sample 4 is damaged"):
                next(ahead)
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_prefetching_ends_with_the_block() -> None:
    """The thread ends although nobody took what it read; afterwards there is nothing more."""
    with PrefetchedBatches(MicroBatches(Numbers(100), 1), lambda batch: batch, depth=1) as ahead:
        next(ahead)
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    with pytest.raises(StopIteration):
        next(ahead)


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
    defaults |= {"weight_by_num_documents": False, "weighted_sampler_alpha": 1.0}
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


def test_train_epochs(copied: Callable[[str, str], str], golden_json: Callable[[str], Any]) -> None:
    """None samples reads each document once; the iterations of passes are upstream's whole batches, rounded down."""
    sets = build_datasets(_settings(data_path=copied("u16_rand", "d"), train_iters=None), (None, None, None))
    assert [source.dataset.index_map.epochs for source in sets.sources] == [1, 1]
    assert sets.train is not None
    assert len(sets.train) == (8825 - 1) // 16 - 1
    assert epoch_iterations(550, 3, micro_batches=4, gradient_accumulation_steps=2) == 137 * 3 // 2
    prefix = copied("u16_rand", "e")
    mixed = build_datasets(_settings(train_data_paths=[prefix, prefix], train_iters=None), (None, None, None))
    assert mixed.train is not None
    assert len(mixed.train) == 2 * ((9105 - 1) // 16 - 1)


def test_absurd_epochs(copied: Callable[[str, str], str], caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of epochs are said, tens of thousands refused, before anything is built."""
    prefix = copied("u16_rand", "d")
    build_datasets(_settings(data_path=prefix, split="1", train_iters=20_000))
    assert "141 epochs of 9,105 tokens for 80,000 samples of 16 tokens" in caplog.text
    with pytest.raises(DataError, match=r"train: 14,059 epochs of 9,105 tokens"):
        build_datasets(_settings(data_path=prefix, split="1", train_iters=2_000_000))


def test_dataset_of_another_tokenizer(tmp_path: Path, written: Callable[..., str]) -> None:
    """Before the first step: an id outside the vocabulary, also without a description, and another tokenizer's ids."""
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "some text " * 50}), encoding="utf-8")
    gpt2, characters = build_tokenizer("GPT2BPETokenizer"), build_tokenizer("CharLevelTokenizer")
    tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "x"), characters, Options(tokenizer_type="CharLevel"))
    sets = build_datasets(_settings(data_path=str(tmp_path / "x_text_document"), split="1", train_iters=1))
    sets.check(characters, 512)
    with pytest.raises(
        DataError, match=r"made with another tokenizer: CharLevel with 512 tokens .* has 50257 and 50256"
    ):
        sets.check(gpt2, 50304)
    with pytest.raises(DataError, match="holds token 120, but the vocabulary has 100"):
        sets.check(characters, 100)
    plain = build_datasets(_settings(data_path=written([[5, 60000] * 200]), split="1", train_iters=1))
    with pytest.raises(DataError, match="holds token 60000, but the vocabulary has 50304"):
        plain.check(gpt2, 50304)
    plain.check(gpt2, 60001)


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

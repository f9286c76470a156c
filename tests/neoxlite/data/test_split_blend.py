"""The split string and the mixing of datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neoxlite.data import blending
from neoxlite.data.blending import (
    blend_order,
    normalize_weights,
    samples_per_dataset,
    weights_by_documents,
)
from neoxlite.data.index_cache import build_blend
from neoxlite.data.split import split_documents
from neoxlite.errors import DataError


def test_splits_equal_upstreams(golden_json: Callable[[str], Any]) -> None:
    """All recorded splits: boundaries equal, and what upstream refuses is refused."""
    cases = golden_json("index_maps/splits.json")["cases"]
    assert len(cases) == 184
    for case in cases:
        if "raises" in case:
            with pytest.raises(DataError, match="split"):
                split_documents(case["split"], case["size"])
            continue
        parts = split_documents(case["split"], case["size"])
        assert [0, *(part.stop for part in parts)] == case["boundaries"], case
        assert [part.start for part in parts] == case["boundaries"][:3]


@pytest.mark.parametrize("split", ["-1,2,3", "1,nan,0", "inf", "0,0,0,5", "1,,2"])
def test_refused_splits(split: str) -> None:
    """Shares that are no shares are named with an example of a right one."""
    with pytest.raises(DataError, match="split: ") as caught:
        split_documents(split, 10)
    assert "969, 30, 1" in str(caught.value.hint)


def test_blends_equal_upstreams(golden: Path, golden_json: Callable[[str], Any]) -> None:
    """Dataset and number of every sample, in upstream's types."""
    cases = golden_json("index_maps/blend.json")["blend"]
    assert len(cases) == 7
    with np.load(golden / "index_maps" / "blend.npz") as arrays:
        for case in cases:
            order, within = blend_order(normalize_weights(case["weights"]), case["size"])
            assert [order.dtype.name, within.dtype.name] == case["dtypes"]
            np.testing.assert_array_equal(order, arrays[f"{case['case']}/dataset_index"])
            np.testing.assert_array_equal(within, arrays[f"{case['case']}/dataset_sample_index"])


@pytest.mark.parametrize(
    "weights", [[0.3, 0.7], [1, 2, 1], [1] * 7, [0, 1, 3], [1, 1e-3, 1e-3, 2e-3], [10.0 ** -(i % 4) for i in range(40)]]
)
def test_the_order_does_not_depend_on_its_stretches(weights: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in many short stretches it is the rule's, sample by sample: the largest lag, ties to the first."""
    monkeypatch.setattr("neoxlite.data.blending._STRETCH_SAMPLES", 16)
    shares = normalize_weights(weights)
    taken = [0] * len(shares)
    expected = []
    for sample in range(1000):
        lags = [share * max(sample, 1) - count for share, count in zip(shares, taken, strict=True)]
        expected.append(lags.index(max(lags)))
        taken[expected[-1]] += 1
    order, within = blend_order(shares, 1000)
    assert order.tolist() == expected
    assert [int(within[order == number].size) for number in range(len(shares))] == taken


@pytest.mark.parametrize("weights", [[1e-5] * 20 + [1], [10.0 ** -(number / 4) for number in range(30)]])
def test_stretches_are_rarely_made_again(weights: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """With small weights either: from another guess one stretch after another was, 24 s for a million samples."""
    made: list[int] = []
    monkeypatch.setattr(blending, "_STRETCH_SAMPLES", 64)
    real = blending._stretches

    def counted(weights: Any, first: Any, taken: Any, length: int) -> Any:
        made.append(first.size)
        return real(weights, first, taken, length)

    monkeypatch.setattr(blending, "_stretches", counted)
    blend_order(normalize_weights(weights), 1024 * 64)
    assert made[0] == 1024
    assert len(made) < 100
    assert sum(made) < 3 * 1024


def test_weights_equal_upstreams(golden_json: Callable[[str], Any]) -> None:
    """Normalised weights and samples of each dataset; weights from document counts."""
    told = golden_json("index_maps/blend.json")
    assert len(told["normalized"]) == 28
    for case in told["normalized"]:
        weights = normalize_weights(case["weights"])
        assert weights == case["normalized"]
        assert samples_per_dataset(weights, case["num_samples"]) == case["weighted_num_samples"]
    assert len(told["weights_by_num_docs"]) == 20
    for case in told["weights_by_num_docs"]:
        weights = weights_by_documents(case["num_docs"], case["alpha"])
        np.testing.assert_allclose(weights, case["weights"], rtol=1e-12)


def test_one_dataset_by_documents() -> None:
    """A single dataset, where upstream's formula divides by zero, has all the weight."""
    assert weights_by_documents([17], 0.3) == [1.0]


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [float("nan")], [float("inf"), 1]])
def test_refused_weights(weights: list[float]) -> None:
    """Weights that give no proportions are refused with the key's name."""
    with pytest.raises(DataError, match="train_data_weights: "):
        normalize_weights(weights, "train_data_weights")


def test_too_many_datasets() -> None:
    """One byte a sample names at most 254 datasets."""
    with pytest.raises(DataError, match="255 datasets"):
        blend_order([1 / 255] * 255, 10)


def test_blend_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The order is written once, mapped by the others, made again when damaged, and never mistaken for another."""
    prefix = str(tmp_path / "d")
    expected = blend_order([0.3, 0.7], 30)

    def equal(weights: list[float], lengths: list[int], *, is_builder: bool) -> bool:
        built = build_blend(prefix, "train", weights, lengths, is_builder=is_builder)
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(built, expected, strict=True))

    assert equal([0.3, 0.7], [10, 20], is_builder=False)
    assert list(tmp_path.iterdir()) == []
    assert equal([0.3, 0.7], [10, 20], is_builder=True)
    (file,) = tmp_path.iterdir()
    assert isinstance(build_blend(prefix, "train", [0.3, 0.7], [10, 20], is_builder=False)[0], np.memmap)
    assert not equal([0.7, 0.3], [10, 20], is_builder=True)
    assert not equal([0.3, 0.7], [10, 21], is_builder=True)
    assert len(list(tmp_path.iterdir())) == 3
    good = file.read_bytes()
    for damaged in (good[:-1], good.replace(b"(30,)", b"(29,)")):
        file.unlink()
        file.write_bytes(damaged)
        assert equal([0.3, 0.7], [10, 20], is_builder=True)
        assert file.read_bytes() == good
    assert "is damaged" in caplog.text

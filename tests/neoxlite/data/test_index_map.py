"""Index maps equal upstream's, and their files are shared, checked and made again when damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.data.gpt_dataset import GPTDataset
from neoxlite.data.index_cache import IndexRequest, build_index
from neoxlite.data.index_map import IndexMap, build_index_map, epochs_needed
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.upstream_cache import upstream_stems
from neoxlite.errors import DataError

CASES = [
    "tiny",
    "one_doc",
    "exact_fit",
    "short_docs_long_seq",
    "zero_length_docs",
    "first_doc_empty_often",
    "sub_range",
    "mid",
    "big_seed",
    "train_epochs_3",
    "seq_2",
    "not_allow_chopped",
]
ARRAYS = ("doc_idx", "sample_idx", "shuffle_idx")


@pytest.mark.parametrize("case", CASES)
def test_equals_upstream(case: str, golden: Path, golden_json: Callable[[str], Any]) -> None:
    """All three arrays have upstream's values and types."""
    told = golden_json("index_maps/index_maps.json")["cases"][case]
    with np.load(golden / "index_maps" / "index_maps.npz") as arrays:
        built = build_index_map(
            arrays[f"{case}/sizes"],
            arrays[f"{case}/documents"],
            num_samples=told["num_samples"],
            seq_length=told["seq_length"],
            seed=told["seed"],
            epochs=told["num_epochs_argument"],
        )
        for name in ARRAYS:
            assert getattr(built, name).dtype == arrays[f"{case}/{name}"].dtype
            np.testing.assert_array_equal(getattr(built, name), arrays[f"{case}/{name}"])
    assert built.epochs == told["epochs"]


def test_a_range_is_an_array_of_its_numbers() -> None:
    """Documents given as a range, as a split gives them, are the same as listed."""
    sizes = np.array([4, 0, 9, 2, 7], np.int32)
    listed = build_index_map(sizes, np.array([1, 2, 3]), num_samples=9, seq_length=3, seed=5)
    ranged = build_index_map(sizes, range(1, 4), num_samples=9, seq_length=3, seed=5)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(listed, name), getattr(ranged, name))


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=20), st.integers(1, 40), st.integers(1, 9), st.integers(0, 99))
def test_samples_tile_the_shuffled_stream(sizes: list[int], num_samples: int, seq_length: int, seed: int) -> None:
    """Sample i begins at token i * seq_length of the shuffled documents laid end to end, counted one by one."""
    if sum(sizes) == 0:
        with pytest.raises(DataError, match="hold no tokens"):
            build_index_map(
                np.array(sizes), range(len(sizes)), num_samples=num_samples, seq_length=seq_length, seed=seed
            )
        return
    built = build_index_map(
        np.array(sizes), range(len(sizes)), num_samples=num_samples, seq_length=seq_length, seed=seed
    )
    flat = [(place, token) for place, document in enumerate(built.doc_idx) for token in range(sizes[document])]
    samples = len(built.shuffle_idx)
    assert samples == (len(flat) - 1) // seq_length >= num_samples
    assert built.epochs == 1 or ((built.epochs - 1) * sum(sizes) - 1) // seq_length < num_samples
    assert [tuple(row) for row in built.sample_idx.tolist()[1:]] == [
        flat[number * seq_length] for number in range(1, samples + 1)
    ]
    assert sorted(built.shuffle_idx.tolist()) == list(range(samples))


def test_epochs_by_hand() -> None:
    """Each sample needs its tokens, and all together one more."""
    assert epochs_needed(17, 8, 2) == 1
    assert epochs_needed(16, 8, 2) == 2
    assert epochs_needed(28, 4, 10) == 2
    assert epochs_needed(5, 100, 0) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"seq_length": 0}, "seq_length is 0"),
        ({"epochs": 1, "seq_length": 30}, "10 tokens are too few for one sample of 30"),
    ],
)
def test_refused(change: dict[str, int], message: str) -> None:
    """What cannot give samples says why."""
    settings: dict[str, Any] = {"num_samples": 3, "seq_length": 4, "seed": 1} | change
    with pytest.raises(DataError, match=message):
        build_index_map(np.array([4, 6]), range(2), **settings)


def test_negative_size_is_refused() -> None:
    """A damaged size does not become a sample."""
    with pytest.raises(DataError, match="negative size"):
        build_index_map(np.array([4, -6]), range(2), num_samples=1, seq_length=2, seed=1)


def _request(prefix: str, **change: Any) -> IndexRequest:
    settings: dict[str, Any] = {
        "documents": range(291),
        "name": "train",
        "num_samples": 40,
        "seq_length": 16,
        "seed": 1234,
    }
    return IndexRequest(dataset=IndexedDataset(prefix), **(settings | change))


def _equal(first: IndexMap, second: IndexMap) -> bool:
    return first.epochs == second.epochs and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ARRAYS
    )


def test_file_is_shared(copied: Callable[[str, str], str]) -> None:
    """The builder writes one file; others map the same arrays from it, and it is not written again."""
    request = _request(copied("u16_rand", "d"))
    built, path = build_index(request)
    assert path is not None
    before = path.stat().st_mtime_ns
    read, same = build_index(request, is_builder=False)
    again, _ = build_index(request)
    assert same == path
    assert path.stat().st_mtime_ns == before
    assert _equal(built, request.build())
    assert _equal(read, built)
    assert _equal(again, built)
    assert isinstance(read.doc_idx, np.memmap)


def test_name_depends_on_everything(copied: Callable[[str, str], str], written: Callable[..., str]) -> None:
    """A changed split, seed, length, count or content has another file, which upstream's names have not."""
    prefix = copied("u16_rand", "d")
    requests = [
        _request(prefix),
        _request(prefix, documents=range(290)),
        _request(prefix, documents=range(1, 292)),
        _request(prefix, seed=1),
        _request(prefix, seq_length=17),
        _request(prefix, num_samples=41),
        _request(prefix, name="valid"),
    ]
    sizes = [1 + number % 7 for number in range(291)]
    requests.append(_request(written([[1] * size for size in sizes], name="d")))
    requests.append(_request(written([[1] * size for size in [*sizes[1:], sizes[0]]], name="d")))
    assert len({request.cache_path() for request in requests}) == len(requests)


def test_order_of_builder_and_others(copied: Callable[[str, str], str]) -> None:
    """The builder reaches the barrier when the file is there, the others before they look for it."""
    request = _request(copied("u16_rand", "d"))
    seen: list[bool] = []
    build_index(request, is_builder=False, wait=lambda: seen.append(request.cache_path().exists()))
    assert not request.cache_path().exists()
    build_index(request, wait=lambda: seen.append(request.cache_path().exists()))
    assert seen == [False, True]


def test_failing_builder_releases_the_others(written: Callable[..., str]) -> None:
    """A builder that cannot build still reaches the barrier, and the others then fail with the same message."""
    request = _request(written([[], []], name="e"), documents=range(2))
    reached: list[str] = []
    with pytest.raises(DataError, match="hold no tokens"):
        build_index(request, wait=lambda: reached.append("builder"))
    with pytest.raises(DataError, match="hold no tokens"):
        build_index(request, is_builder=False, wait=lambda: reached.append("other"))
    assert reached == ["builder", "other"]


def test_unwritable_folder_falls_back_to_memory(
    copied: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the file cannot be written, everyone has the same arrays in memory and one message says so."""
    request = _request(copied("u16_rand", "d"))

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)  # root may write to any folder
    with caplog.at_level(logging.WARNING):
        built, path = build_index(request)
        read, other = build_index(request, is_builder=False)
    assert (path, other) == (None, None)
    assert _equal(built, read)
    assert len(caplog.records) == 1
    assert "cannot be written (Permission denied)" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(b"<u4", b"<f4"),
        lambda data: data.replace(b"(552, 2)", b"(1104,) "),
    ],
)
def test_damaged_file_is_made_again(
    damage: Callable[[bytes], bytes], copied: Callable[[str, str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """A cut or changed file is noticed and replaced, with a message."""
    request = _request(copied("u16_rand", "d"))
    built, path = build_index(request)
    assert path is not None
    good = path.read_bytes()
    changed = damage(good)
    assert changed != good
    path.unlink()
    path.write_bytes(changed)
    again, _ = build_index(request)
    assert _equal(again, built)
    assert path.read_bytes() == good
    assert "is damaged" in caplog.text


def _upstreams_files(stem: str, index_map: IndexMap) -> None:
    """Save arrays as GPT-NeoX does."""
    for name in ("doc", "sample", "shuffle"):
        np.save(f"{stem}_{name}_idx.npy", getattr(index_map, f"{name}_idx"), allow_pickle=True)


@pytest.mark.parametrize("suffix", ["_packedpi_ac", "_packedpi", ""])
def test_upstreams_files_are_used(suffix: str, copied: Callable[[str, str], str]) -> None:
    """A run begun with GPT-NeoX goes on in the order of its index files, of today's and older names, on all ranks."""
    prefix = copied("u16_rand", "d")
    request = _request(prefix)
    other = build_index_map(request.dataset.sizes, range(291), num_samples=40, seq_length=16, seed=99)
    _upstreams_files(f"{prefix}_train_indexmap_40ns_16sl_1234s{suffix}", other)
    for is_builder in (True, False):
        used, path = build_index(request, is_builder=is_builder)
        assert _equal(used, other)
        assert path is None
    assert not request.cache_path().exists()
    # Of another seed, length, count or split there are none.
    for change in ({"seed": 1}, {"seq_length": 17}, {"num_samples": 41}, {"name": "valid"}):
        assert not _equal(build_index(_request(prefix, **change), is_builder=False)[0], other)


def test_names_are_upstreams(golden_json: Callable[[str], Any], copied: Callable[[str, str], str]) -> None:
    """The names looked for are those that upstream's run has left."""
    told = golden_json("index_maps/index_maps.json")["dataset_end_to_end"]
    files = {name for case in told["cases"].values() for name in case["cache_files"]}
    request = _request(
        copied("u16_rand", "d"),
        num_samples=told["cases"]["a"]["num_samples"][0],
        seq_length=told["cases"]["a"]["seq_length"],
        seed=told["cases"]["a"]["seed"],
    )
    stem = Path(upstream_stems(request)[0]).name
    assert {f"{stem}_{name}_idx.npy" for name in ("doc", "sample", "shuffle")} <= files


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"documents": range(290)}, "another split"),
        ({"documents": range(9, 300)}, "another split"),
        ({"sizes": "reversed"}, "other documents"),
        ({"shuffle": "repeated"}, "shuffling is damaged"),
        ({"shuffle": "negative"}, "shuffling is damaged"),
        ({"doc": "repeated"}, "equally often"),
        ({"sample": "short"}, "shapes do not fit"),
        ({"file": "pickle"}, "Python objects"),
        ({"file": "cut"}, ""),
    ],
)
def test_upstreams_files_that_do_not_fit(
    damage: dict[str, Any], message: str, copied: Callable[[str, str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream uses any file of the name, also of a changed split or dataset; here it is said and not used."""
    prefix = copied("u16_rand", "d")
    request = _request(prefix)
    sizes = request.dataset.sizes[::-1] if "sizes" in damage else request.dataset.sizes
    other = build_index_map(sizes, damage.get("documents", range(291)), num_samples=40, seq_length=16, seed=99)
    arrays = {name: np.array(getattr(other, f"{name}_idx")) for name in ("doc", "sample", "shuffle")}
    if damage.get("shuffle"):
        arrays["shuffle"] = arrays["shuffle"].astype(np.int64)
        arrays["shuffle"][0] = arrays["shuffle"][1] if damage["shuffle"] == "repeated" else -1
    if "doc" in damage:
        arrays["doc"][0] = arrays["doc"][1]
    if "sample" in damage:
        arrays["sample"] = arrays["sample"][:-1]
    stem = f"{prefix}_train_indexmap_40ns_16sl_1234s_packedpi_ac"
    for name, array in arrays.items():
        np.save(f"{stem}_{name}_idx.npy", array)
    doc = Path(f"{stem}_doc_idx.npy")
    if damage.get("file") == "pickle":
        np.save(doc, np.array([{}], object), allow_pickle=True)
    if damage.get("file") == "cut":
        doc.write_bytes(doc.read_bytes()[:-3])
    built, path = build_index(request)
    assert path == request.cache_path()
    assert _equal(built, request.build())
    assert "of GPT-NeoX are not used" in caplog.text
    assert message in caplog.text


@pytest.mark.parametrize("case", ["a", "b"])
@pytest.mark.parametrize("part", ["train", "valid"])
def test_items_equal_upstreams(case: str, part: str, golden: Path, golden_json: Callable[[str], Any]) -> None:
    """Rows of upstream's dataset, and its length, from its own tokens."""
    told = golden_json("index_maps/index_maps.json")["dataset_end_to_end"]["cases"][case]
    dataset = IndexedDataset(golden / "datasets" / "u16_rand")
    documents = {
        "a": {"train": range(291), "valid": range(291, 300)},
        "b": {"train": range(270), "valid": range(270, 300)},
    }
    index_map = build_index_map(
        dataset.sizes,
        documents[case][part],
        num_samples=told["num_samples"][part == "valid"],
        seq_length=told["seq_length"],
        seed=told["seed"],
    )
    samples = GPTDataset(dataset, index_map, told["seq_length"])
    items = np.load(golden / "index_maps" / f"{case}_{part}_items.npy")
    assert len(samples) == told["parts"][part]["len"]
    np.testing.assert_array_equal(np.stack([samples[number] for number in range(len(items))]), items)
    assert samples[0].dtype == np.int64


def test_numbers_outside(golden: Path) -> None:
    """A number outside the dataset is an IndexError; an endless sequence begins again behind the hidden last one."""
    dataset = IndexedDataset(golden / "datasets" / "u16_rand")
    index_map = build_index_map(dataset.sizes, range(300), num_samples=10, seq_length=100, seed=1)
    samples = GPTDataset(dataset, index_map, 100)
    assert len(samples) == 90  # (9105 - 1) // 100 = 91, less the one that upstream never counts
    for number in (-1, 90):
        with pytest.raises(IndexError):
            samples[number]
    assert len({tuple(samples.sample(number)) for number in range(91)}) == 91
    np.testing.assert_array_equal(samples.sample(91), samples[1])
    np.testing.assert_array_equal(samples.sample(180), samples[0])


def test_damaged_offsets_are_no_garbage(copied: Callable[[str, str], str]) -> None:
    """A byte offset behind the end of the tokens, which opening does not read, ends in a message when it is used."""
    prefix = copied("u16_rand", "d")
    path = Path(f"{prefix}.idx")
    data = bytearray(path.read_bytes())
    at = 34 + 4 * 300 + 8 * 150
    data[at : at + 8] = (10**6).to_bytes(8, "little")
    path.write_bytes(data)
    dataset = IndexedDataset(prefix)
    index_map = build_index_map(dataset.sizes, range(300), num_samples=10, seq_length=100, seed=1)
    samples = GPTDataset(dataset, index_map, 100)
    with pytest.raises(DataError, match="the index is damaged"):
        sum(len(samples[number]) for number in range(len(samples)))

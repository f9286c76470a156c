"""The .bin/.idx files: equal to upstream's byte for byte, and refused when damaged."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.writer import DatasetWriter, token_dtype
from neoxlite.errors import DataError

WITH_DOCUMENTS = [
    "u16_simple",
    "i32_simple",
    "u16_emptyseq",
    "i32_emptyseq",
    "u16_emptydoc",
    "u16_multiseq",
    "u16_border",
    "i32_border",
]


@pytest.mark.parametrize("name", WITH_DOCUMENTS)
def test_written_files_equal_upstreams(
    name: str, golden: Path, golden_json: Callable[[str], Any], tmp_path: Path
) -> None:
    """The same documents give upstream's bytes, with empty sequences and empty documents."""
    case = golden_json("datasets/documents.json")["cases"][name]
    with DatasetWriter(tmp_path / name, token_dtype(case["vocab_size"])) as writer:
        for document in case["documents"]:
            for sequence in document:
                writer.add_sequence(sequence)
            writer.end_document()
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"{name}.{suffix}").read_bytes() == (golden / "datasets" / f"{name}.{suffix}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.bin", f"{name}.idx"]


@pytest.mark.parametrize("name", [*WITH_DOCUMENTS, "cached_i32"])
def test_read_back(name: str, golden: Path, golden_json: Callable[[str], Any]) -> None:
    """Sequences, sizes, boundaries and dtype of upstream's files, also of the older cached format."""
    case = golden_json("datasets/documents.json")["cases"][name]
    dataset = IndexedDataset(golden / "datasets" / name)
    documents = case["documents"]
    sequences = documents if name == "cached_i32" else [sequence for document in documents for sequence in document]
    assert [dataset[number].tolist() for number in range(len(dataset))] == sequences
    assert dataset.dtype.name == case["dtype"]
    assert dataset.sizes.tolist() == case.get("sizes", [len(sequence) for sequence in sequences])
    assert dataset.documents.tolist() == case.get("doc_idx", [0, 1, 2, 3])
    assert dataset.verify().tokens == sum(map(len, sequences))
    assert dataset.kind == ("cached" if name == "cached_i32" else "mmap")


def test_dtype_rule(golden_json: Callable[[str], Any]) -> None:
    """Two bytes a token below a vocabulary of 65,500, as upstream."""
    rule = golden_json("datasets/documents.json")["dtype_rule"]
    assert len(rule) == 10
    for vocabulary, dtype in rule.items():
        assert token_dtype(None if vocabulary == "None" else int(vocabulary)).name == dtype


def test_merge_keeps_boundaries(golden: Path, tmp_path: Path) -> None:
    """Appending gives upstream's merged tokens, but with the boundaries that upstream loses."""
    with DatasetWriter(tmp_path / "m", "uint16") as writer:
        for name in ("u16_simple", "u16_rand"):
            writer.append(IndexedDataset(golden / "datasets" / name))
    assert (tmp_path / "m.bin").read_bytes() == (golden / "datasets" / "u16_merged.bin").read_bytes()
    merged, theirs = IndexedDataset(tmp_path / "m"), IndexedDataset(golden / "datasets" / "u16_merged")
    assert merged.sizes.tolist() == theirs.sizes.tolist()
    assert merged.documents.tolist() == list(range(309))
    assert not theirs.has_document_boundaries
    assert theirs.num_documents == 308


def test_merge_of_multi_sequence_documents(golden: Path, tmp_path: Path) -> None:
    """Documents of several or no sequences keep their boundaries, shifted by what came before."""
    with DatasetWriter(tmp_path / "m", "int32") as writer:
        writer.append(IndexedDataset(golden / "datasets" / "u16_multiseq"))
        writer.append(IndexedDataset(golden / "datasets" / "u16_emptydoc"))
    first = IndexedDataset(golden / "datasets" / "u16_multiseq").documents.tolist()
    second = IndexedDataset(golden / "datasets" / "u16_emptydoc").documents.tolist()
    assert IndexedDataset(tmp_path / "m").documents.tolist() == first + [6 + end for end in second[1:]]


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=9), max_size=4), max_size=8),
    st.sampled_from(["uint16", "int32", "int64"]),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], dtype: str) -> None:
    """Whatever is written is read back, with any mix of empty sequences and documents."""
    prefix = tmp_path_factory.getbasetemp() / "round_trip"
    with DatasetWriter(prefix, dtype) as writer:
        for document in documents:
            for sequence in document:
                writer.add_sequence(sequence)
            writer.end_document()
    dataset = IndexedDataset(prefix)
    read = [
        [dataset[number].tolist() for number in range(start, end)]
        for start, end in zip(dataset.documents[:-1].tolist(), dataset.documents[1:].tolist(), strict=True)
    ]
    assert read == documents
    assert dataset.verify().tokens == sum(len(sequence) for document in documents for sequence in document)


def test_tokens_that_do_not_fit(tmp_path: Path) -> None:
    """A token outside the dtype is refused rather than wrapped round, and no file is left."""
    with (
        pytest.raises(DataError, match="tokens from 3 to 65536 do not fit uint16"),
        DatasetWriter(tmp_path / "x", "uint16") as writer,
    ):
        writer.add_document([3, 65536])
    assert list(tmp_path.iterdir()) == []


def test_error_inside_leaves_the_old_dataset(written: Callable[..., str]) -> None:
    """An interrupted rewrite leaves the older dataset of the name as it was."""
    prefix = written([[1, 2, 3]])

    def interrupted() -> None:
        with DatasetWriter(prefix, "uint16") as writer:
            writer.add_document([9])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert IndexedDataset(prefix)[0].tolist() == [1, 2, 3]
    assert len(list(Path(prefix).parent.iterdir())) == 2


def test_killed_writer_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing: neither file exists under its final name."""
    code = (
        "import sys, time\n"
        "from neoxlite.data.writer import DatasetWriter\n"
        "with DatasetWriter(sys.argv[1], 'uint16') as writer:\n"
        "    writer.add_document([1] * 100000)\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "x.bin").exists()
    assert not (tmp_path / "x.idx").exists()


def test_missing_folder(tmp_path: Path) -> None:
    """A prefix in a folder that does not exist is refused before any work."""
    with (
        pytest.raises(DataError, match=r"the folder .*nowhere does not exist"),
        DatasetWriter(tmp_path / "nowhere" / "x", "uint16"),
    ):
        pass


def _patched(prefix: str, suffix: str, change: Callable[[bytes], bytes]) -> None:
    path = Path(f"{prefix}.{suffix}")
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("suffix", "change", "message"),
    [
        ("idx", lambda data: b"", r"set.idx is empty\n"),
        ("idx", lambda data: b"PK\x03\x04" + data[4:], r"no dataset index; it is a zip archive"),
        ("idx", lambda data: data[:20], r"20 bytes, but the header alone has 34"),
        ("idx", lambda data: data[:-1], r"201 bytes, but 8 sequences and 9 document boundaries need 202"),
        ("idx", lambda data: data + b"\0", r"203 bytes, .* need 202"),
        ("idx", lambda data: data[:9] + struct.pack("<Q", 2) + data[17:], r"format version 2, expected 1"),
        ("idx", lambda data: data[:17] + b"\x07" + data[18:], r"dtype code 7 is a floating-point type"),
        ("idx", lambda data: data[:17] + b"\x63" + data[18:], r"unknown dtype code 99"),
        ("idx", lambda data: data[:18] + b"\xff" * 8 + data[26:], r"202 bytes, but 18446744073709551615 sequences"),
        # The golden dataset's documents have 5, 3, 8, 1, 7, 4, 12 and 2 tokens of two bytes.
        ("bin", lambda data: data[:-2], r"82 bytes, but its index set.idx expects 84; .* document is 6 \(of 0 to 7\)"),
        (
            "bin",
            lambda data: data[:33],
            r"of 8 sequences 3 are complete, the last complete document is 2 \(of 0 to 7\)",
        ),
        ("bin", lambda data: data[:9], r"none of 8 sequences is complete"),
        ("bin", lambda data: data + b"\0\0", r"86 bytes, but its index set.idx expects 84"),
        ("bin", lambda data: b"", r"0 bytes, but its index set.idx expects 84"),
    ],
)
def test_damaged_files(
    suffix: str, change: Callable[[bytes], bytes], message: str, copied: Callable[[str, str], str]
) -> None:
    """Each kind of damage is named with the expected and the real bytes when the dataset is opened."""
    prefix = copied("u16_simple", "set")
    _patched(prefix, suffix, change)
    with pytest.raises(DataError, match=message) as caught:
        IndexedDataset(prefix)
    assert caught.value.hint
    assert prefix in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:24] + struct.pack("<Q", 2) + data[32:], r"item size 2 does not fit dtype code 4"),
        (lambda data: data[:-8], r"168 bytes, but 3 sequences and 4 document boundaries need 176"),
        (lambda data: data[:40] + struct.pack("<Q", 4) + data[48:] + bytes(8), r"3 items with 4 sizes"),
    ],
)
def test_damaged_cached_files(
    change: Callable[[bytes], bytes], message: str, copied: Callable[[str, str], str]
) -> None:
    """The older format is checked in the same way."""
    prefix = copied("cached_i32", "set")
    _patched(prefix, "idx", change)
    with pytest.raises(DataError, match=message):
        IndexedDataset(prefix)


def test_verify_finds_what_opening_cannot(copied: Callable[[str, str], str]) -> None:
    """A changed pointer in the middle passes the size check and is found by verify."""
    prefix = copied("u16_simple", "set")
    at = 34 + 8 * 4 + 8 * 3
    _patched(prefix, "idx", lambda data: data[:at] + struct.pack("<q", 999) + data[at + 8 :])
    with pytest.raises(DataError, match=r"sequence 3 has size .* at byte 999, expected byte"):
        IndexedDataset(prefix).verify()


def test_verify_finds_bad_boundaries(copied: Callable[[str, str], str]) -> None:
    """Boundaries that fall are found by verify."""
    prefix = copied("u16_simple", "set")
    _patched(prefix, "idx", lambda data: data[:-16] + struct.pack("<qq", 1, 8))
    with pytest.raises(DataError, match="boundaries do not rise"):
        IndexedDataset(prefix).verify()


def test_verify_finds_label_datasets(written: Callable[..., str]) -> None:
    """Negative ids mean a label dataset, which is not for training as tokens."""
    prefix = written([[5, -100, 7]], dtype="int32")
    with pytest.raises(DataError, match="token id -100 is negative"):
        IndexedDataset(prefix).verify()


def test_megatron_modes_are_accepted(copied: Callable[[str, str], str]) -> None:
    """Megatron Core's optional byte for each sequence behind the boundaries does not disturb."""
    prefix = copied("u16_simple", "set")
    before = [sequence.tolist() for sequence in map(IndexedDataset(prefix).get, range(8))]
    _patched(prefix, "idx", lambda data: data + bytes(8))
    assert [IndexedDataset(prefix)[number].tolist() for number in range(8)] == before


def test_missing_dataset_lists_what_is_there(written: Callable[..., str], tmp_path: Path) -> None:
    """A wrong prefix is answered with the near ones; a suffix is explained."""
    prefix = written([[1]], name="青空_text_document")
    with pytest.raises(DataError, match=r"no dataset .*青空: .*青空.idx does not exist") as caught:
        IndexedDataset(tmp_path / "青空")
    assert "青空_text_document" in str(caught.value.hint)
    with pytest.raises(DataError, match=r"named by its prefix, without \.bin") as caught:
        IndexedDataset(f"{prefix}.bin")
    assert caught.value.hint == f"write {prefix}"
    with pytest.raises(DataError) as caught:
        IndexedDataset(tmp_path / "no" / "where")
    assert re.search(r"the folder .*no does not exist", str(caught.value.hint))
    empty = tmp_path / "a"
    empty.mkdir()
    with pytest.raises(DataError) as caught:
        IndexedDataset(empty / "b")
    assert "there is no .idx file" in str(caught.value.hint)


def test_a_dataset_may_be_empty(written: Callable[..., str]) -> None:
    """No documents at all is a readable dataset of no tokens."""
    dataset = IndexedDataset(written([]))
    assert (len(dataset), dataset.num_tokens, dataset.num_documents) == (0, 0, 0)
    assert dataset.verify().tokens == 0


def test_reading_is_a_view(written: Callable[..., str]) -> None:
    """Parts of a sequence come straight from the mapped file."""
    dataset = IndexedDataset(written([[1, 2, 3], [4, 5, 6, 7]]))
    assert dataset.get(1, 1, 2).tolist() == [5, 6]
    assert dataset.get(1, 2).tolist() == [6, 7]
    assert not dataset.get(1).flags.writeable
    assert dataset.tokens(2, 5).tolist() == [3, 4, 5]
    assert np.shares_memory(dataset.get(0), dataset.tokens(0, 3))


@pytest.mark.parametrize("prefix", ["a,b", "0.3 データ/a 0.7 データ/b", "1 a"])
def test_lists_of_megatron(prefix: str) -> None:
    """Several datasets in one text, as Megatron has them: GPT-NeoX's way is named."""
    with pytest.raises(DataError, match=f"no dataset {prefix}: ") as caught:
        IndexedDataset(prefix)
    assert "train_data_paths" in (caught.value.hint or "")


@pytest.mark.parametrize("suffix", [".idx", ".bin"])
def test_pointers_of_git_lfs(suffix: str, copied: Callable[[str, str], str]) -> None:
    """A dataset cloned without Git LFS has pointers in place of its files."""
    prefix = copied("u16_multiseq", "x")
    Path(prefix + suffix).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:6a8f\nsize 9\n")
    with pytest.raises(DataError, match=rf"x\{suffix}: .*; it is a pointer of Git LFS") as caught:
        IndexedDataset(prefix)
    assert "git lfs pull" in (caught.value.hint or "")

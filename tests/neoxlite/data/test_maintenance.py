"""verify, merge, split and repair: nothing lost, damage found, and what is whole saved."""

from __future__ import annotations

import functools
import http.server
import itertools
import json
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.cli import main
from neoxlite.data import corpora
from neoxlite.data.dataset_info import info_path, read_info
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.merge import merge_datasets, split_dataset
from neoxlite.data.preprocess import tokenize_files
from neoxlite.data.repair import repair_dataset
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError
from neoxlite.tokenizers import build_tokenizer


def _documents(prefix: str | Path) -> list[list[list[int]]]:
    dataset = IndexedDataset(prefix)
    ends = dataset.documents.tolist()
    return [[dataset[number].tolist() for number in range(first, last)] for first, last in itertools.pairwise(ends)]


def _write(prefix: Path, documents: list[list[list[int]]], dtype: str = "uint16") -> str:
    with DatasetWriter(prefix, dtype) as writer:
        for document in documents:
            for sequence in document:
                writer.add_sequence(sequence)
            writer.end_document()
    return str(prefix)


DOCUMENTS = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=3), max_size=8)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_merge_any(tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[list[int]]]]) -> None:
    """The merged dataset has all documents in order, whatever sequences they have."""
    folder = tmp_path_factory.getbasetemp()
    prefixes = [_write(folder / f"merge{number}", part) for number, part in enumerate(parts)]
    merge_datasets(prefixes, str(folder / "merged"))
    assert _documents(folder / "merged") == [document for part in parts for document in part]
    IndexedDataset(folder / "merged").verify()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(DOCUMENTS, st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_split_and_merge_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], shares: list[int]
) -> None:
    """The parts hold all documents once, in order; merged again they are the same files."""
    folder = tmp_path_factory.getbasetemp()
    prefix = _write(folder / "whole", documents)
    outputs = [str(folder / f"part{number}") for number in range(len(shares))]
    done = split_dataset(prefix, shares, outputs)
    parts = [_documents(output) for output in outputs]
    assert [document for part in parts for document in part] == documents
    assert [written.documents for written in done] == [len(part) for part in parts]
    assert all(part == [] for part, share in zip(parts, shares, strict=True) if share == 0)
    merge_datasets(outputs, str(folder / "again"))
    for suffix in ("bin", "idx"):
        assert (folder / f"again.{suffix}").read_bytes() == (folder / f"whole.{suffix}").read_bytes()


def test_split_shares_by_hand(tmp_path: Path) -> None:
    """Shares in any unit; a tenth of ten documents is one."""
    prefix = _write(tmp_path / "w", [[[number]] for number in range(10)])
    done = split_dataset(prefix, [45, 5], [f"{prefix}_a", f"{prefix}_b"])
    assert [written.documents for written in done] == [9, 1]


def test_merge_of_types_and_formats(golden: Path, tmp_path: Path) -> None:
    """Two and four byte tokens, and the older format, merge to what holds all."""
    names = ["u16_simple", "cached_i32", "i32_border"]
    merge_datasets([str(golden / "datasets" / name) for name in names], str(tmp_path / "m"))
    merged = IndexedDataset(tmp_path / "m")
    assert merged.dtype.name == "int32"
    expected = [sequence for name in names for sequence in map(list, _sequences(golden / "datasets" / name))]
    assert [merged[number].tolist() for number in range(len(merged))] == expected


def _sequences(prefix: Path) -> list[list[int]]:
    dataset = IndexedDataset(prefix)
    return [dataset[number].tolist() for number in range(len(dataset))]


def _tokenized(tmp_path: Path, name: str, tokenizer_type: str, text: str) -> str:
    (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text}), encoding="utf-8")
    tokenize_files([tmp_path / f"{name}.jsonl"], str(tmp_path / name), build_tokenizer(tokenizer_type))
    return str(tmp_path / f"{name}_text_document")


def test_merge_knows_the_tokenizer(tmp_path: Path) -> None:
    """Datasets of one tokenizer keep its description; those of two are not mixed."""
    one, two = (_tokenized(tmp_path, name, "CharLevelTokenizer", name) for name in ("one", "two"))
    merge_datasets([one, two], str(tmp_path / "both"))
    info, first = read_info(str(tmp_path / "both")), read_info(one)
    assert info is not None
    assert first is not None
    assert info.tokenizer == first.tokenizer
    assert (info.tokens, info.largest_id) == (6, ord("w"))
    other = _tokenized(tmp_path, "other", "GPT2BPETokenizer", "x")
    with pytest.raises(DataError, match="made with different tokenizers \\(512 and 50257 tokens\\)"):
        merge_datasets([one, other], str(tmp_path / "mixed"))
    assert not (tmp_path / "mixed.bin").exists()


def test_output_is_no_input(tmp_path: Path) -> None:
    """A dataset is not overwritten while it is read, by whatever name."""
    prefix = _write(tmp_path / "a", [[[1]]])
    (tmp_path / "link.bin").symlink_to(tmp_path / "a.bin")
    for output in (prefix, str(tmp_path / "link")):
        with pytest.raises(DataError, match="is both read and written"):
            merge_datasets([prefix], output)
    with pytest.raises(DataError, match="is both read and written"):
        split_dataset(prefix, [1], [prefix])
    with pytest.raises(DataError, match="is both read and written"):
        repair_dataset(prefix, prefix)
    assert _documents(prefix) == [[[1]]]


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """verify, split, merge and repair as typed, and what they say."""
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "w", [[[number] * 3] for number in range(10)])
    assert main(["data", "verify", "w", "w.idx", "--vocab-size", "10"]) == 0
    assert capsys.readouterr().out.splitlines() == ["w: whole, 10 documents, 30 tokens, largest id 9"] * 2
    assert main(["data", "split", "w", "--shares", "8,2", "--names", "train,valid"]) == 0
    assert capsys.readouterr().out == "w_train: 8 documents, 24 tokens\nw_valid: 2 documents, 6 tokens\n"
    assert main(["data", "split", "w", "--shares", "1,1"]) == 0
    assert main(["data", "merge", "w_train", "w_valid.idx", "--output", "m"]) == 0
    assert "m: 10 documents, 30 tokens from 2 datasets" in capsys.readouterr().out
    assert Path("m.idx").read_bytes() == Path("w.idx").read_bytes()
    (tmp_path / "d").mkdir()
    for name in ("a", "b"):
        _write(tmp_path / "d" / name, [[[1]]])
    assert main(["data", "merge", "--input", "d", "--output-prefix", "n"]) == 0
    assert "n: 2 documents, 2 tokens from 2 datasets" in capsys.readouterr().out
    Path("m.bin").write_bytes(Path("m.bin").read_bytes()[:-7])
    assert main(["data", "verify", "w", "m", "nothing"]) == 2
    told = capsys.readouterr()
    assert "m.bin: 53 bytes, but its index m.idx expects 60; of 10 sequences 8 are complete" in told.err
    assert "of 3 datasets 1 damaged, 1 missing" in told.err
    assert main(["data", "repair", "m", "--output", "mended"]) == 0
    told = capsys.readouterr()
    assert told.out == "mended: 8 documents, 24 tokens\n"
    assert told.err == (
        "m: the last 2 of 10 sequences are not complete\n"
        "m.bin: 5 bytes belong to no complete sequence and are dropped\n"
    )
    Path("m.bin").write_bytes(b"")
    assert main(["data", "repair", "m", "--output", "none"]) == 2
    assert "m: nothing of it is complete; the last 10 of 10 sequences" in capsys.readouterr().err
    assert not Path("none.idx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["merge", "--output", "x"], "give either prefixes or --input"),
        (["merge", "w", "--input", "d", "--output", "x"], "give either prefixes or --input"),
        (["merge", "--input", "none", "--output", "x"], "none cannot be read: No such file"),
        (["merge", "--input", ".", "--output", "x"], "no datasets to merge"),
        (["split", "w", "--shares", "a,b"], "--shares a,b: not numbers"),
        (["split", "w", "--shares", "1,1", "--names", "a,a"], "2 shares, but --names a,a"),
        (["verify", "無い"], "neoxlite: no dataset 無い: 無い.idx does not exist"),
        (["repair", "無い", "--output", "x"], "無い.bin does not exist"),
    ],
)
def test_mistakes(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two lines and the code of refused input."""
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_verify_finds_a_changed_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id above the largest one written, or outside the vocabulary asked for, is damage."""
    monkeypatch.chdir(tmp_path)
    prefix = _tokenized(tmp_path, "x", "CharLevelTokenizer", "abc")
    assert main(["data", "verify", prefix, "--vocab-size", "99"]) == 2
    assert "token 99 lies outside a vocabulary of 99" in capsys.readouterr().err
    Path(f"{prefix}.bin").write_bytes(struct.pack("<3H", 97, 40000, 99))
    assert main(["data", "verify", prefix]) == 2
    assert "3 tokens up to 40000, but 3 up to 99 were written" in capsys.readouterr().err


def test_repair_upstreams_merge(golden: Path, tmp_path: Path) -> None:
    """A dataset merged by GPT-NeoX gets its document boundaries back."""
    done = repair_dataset(str(golden / "datasets" / "u16_merged"), str(tmp_path / "r"))
    assert done.notes == ["document boundaries were missing or wrong; each sequence is a document"]
    with DatasetWriter(tmp_path / "m", "uint16") as writer:
        for name in ("u16_simple", "u16_rand"):
            writer.append(IndexedDataset(golden / "datasets" / name))
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"r.{suffix}").read_bytes() == (tmp_path / f"m.{suffix}").read_bytes()


WHOLE = [[[1, 2, 0]], [[3], [4, 5, 0]], [[6, 7, 8, 9, 0]], [[]], [[5, 0]]]


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_repair_of_any_cut(suffix: str, tmp_path: Path) -> None:
    """Cut anywhere, the whole sequences are saved in order, and never a token that was not there."""
    prefix = Path(_write(tmp_path / "w", WHOLE))
    sequences = [sequence for document in WHOLE for sequence in document]
    good = prefix.with_suffix(f".{suffix}").read_bytes()
    for length in range(len(good)):
        prefix.with_suffix(f".{suffix}").write_bytes(good[:length])
        told = "does not record" if suffix == "idx" and length < 38 else "nothing of it is complete"
        if length < (38 if suffix == "idx" else 6):
            with pytest.raises(DataError, match=told):
                repair_dataset(str(prefix), str(tmp_path / "r"))
            continue
        done = repair_dataset(str(prefix), str(tmp_path / "r"))
        kept = _sequences(tmp_path / "r")
        assert kept == sequences[: len(kept)]
        assert len(kept) == (min((length - 34) // 4, 6) if suffix == "idx" else _whole(sequences, length))
        assert done.tokens * 2 + done.lost_bytes == (tmp_path / "w.bin").stat().st_size
        IndexedDataset(tmp_path / "r").verify()


def _whole(sequences: list[list[int]], length: int) -> int:
    """Count the sequences that begin the file and end within ``length`` bytes of two-byte tokens."""
    ends = [2 * sum(map(len, sequences[: number + 1])) for number in range(len(sequences))]
    return sum(end <= length for end in ends)


def test_repair_without_index(tmp_path: Path) -> None:
    """With the end-of-document token and the type, the tokens alone give the documents back."""
    documents = [[[1, 2, 0]], [[3, 0]], [[6, 7]]]
    prefix = _write(tmp_path / "w", documents)
    Path(f"{prefix}.idx").unlink()
    with pytest.raises(DataError, match="does not record the type of the tokens"):
        repair_dataset(prefix, str(tmp_path / "r"), eod=0)
    with pytest.raises(DataError, match="does not record where the documents end"):
        repair_dataset(prefix, str(tmp_path / "r"), dtype="uint16")
    repair_dataset(prefix, str(tmp_path / "r"), eod=0, dtype="uint16")
    assert _documents(tmp_path / "r") == documents


def test_repair_of_sizes_and_boundaries(tmp_path: Path) -> None:
    """A wrong size is taken from the offsets, a wrong offset from the sizes, boundaries from the end of documents."""
    prefix = _write(tmp_path / "w", WHOLE)
    good = Path(f"{prefix}.idx").read_bytes()
    sizes_at, offsets_at, documents_at = 34, 34 + 4 * 6, 34 + 12 * 6
    for at, value, form in ((sizes_at + 4, 77, "<i"), (sizes_at + 4, -5, "<i"), (offsets_at + 8, 99, "<q")):
        changed = bytearray(good)
        struct.pack_into(form, changed, at, value)
        Path(f"{prefix}.idx").write_bytes(changed)
        repair_dataset(prefix, str(tmp_path / "r"))
        assert _documents(tmp_path / "r") == WHOLE
    changed = bytearray(good)
    struct.pack_into("<q", changed, documents_at + 8, 999)
    Path(f"{prefix}.idx").write_bytes(changed)
    repair_dataset(prefix, str(tmp_path / "r"), eod=0)
    assert _documents(tmp_path / "r") == WHOLE


def test_description_of_other_files_is_not_used(
    tmp_path: Path, written: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """A description whose dataset was replaced, or that is damaged, is not believed."""
    prefix = _tokenized(tmp_path, "x", "CharLevelTokenizer", "abc")
    assert read_info(prefix) is not None
    written([[1, 2, 3, 4]], name="x_text_document")
    assert read_info(prefix) is None
    for content in (b"", b"{}", b"\xff", b"[" * 100_000, b'{"tokens": "x"}'):
        info_path(prefix).write_bytes(content)
        assert read_info(prefix) is None
    assert len(caplog.records) == 5
    info_path(prefix).unlink()
    assert read_info(prefix) is None


def _served(folder: Path) -> Any:
    """Serve a folder on the loopback interface."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_prepare_enwik8(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip of one file, as enwik8 is, gives upstream's layout and one document; the download is asked for first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    text = "<page>\n  <title>日本</title>\n</page>\n" * 50
    (tmp_path / "source").mkdir()
    with zipfile.ZipFile(tmp_path / "source" / "enwik8.zip", "w") as archive:
        archive.writestr("enwik8", text)
    prepare = ["data", "prepare", "enwik8", "--workers", "1"]
    assert main(prepare) == 2
    told = capsys.readouterr().err
    assert "enwik8: data/enwik8/enwik8.zip is not there" in told
    assert "http://mattmahoney.net/dc/enwik8.zip" in told
    server = _served(tmp_path / "source")
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setitem(corpora.CORPORA, "enwik8", corpora.Corpus((f"{address}/enwik8.zip",), "some bytes"))
        assert main([*prepare, "--download"]) == 0
        assert "data/enwik8/enwik8_text_document: 1 document," in capsys.readouterr().out
        monkeypatch.setitem(corpora.CORPORA, "enwik8", corpora.Corpus((f"{address}/gone.zip",), "some bytes"))
        assert main([*prepare, "--download"]) == 1
        assert "gone.zip cannot be downloaded: File not found" in capsys.readouterr().err
    finally:
        server.shutdown()
        server.server_close()
    gpt2 = build_tokenizer("GPT2BPETokenizer", "data/gpt2-vocab.json", "data/gpt2-merges.txt")
    assert _documents("data/enwik8/enwik8_text_document") == [[[*gpt2.encode(text), 50256]]]
    assert sorted(path.name for path in Path("data/enwik8").iterdir()) == [
        "enwik8.zip",
        *(f"enwik8_text_document.{suffix}" for suffix in ("bin", "idx", "info.json")),
    ]


def test_prepare_from_a_damaged_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out is an option of this command, not one of `tokenize`; nothing looks finished."""
    monkeypatch.chdir(tmp_path)
    Path("data/enwik8").mkdir(parents=True)
    Path("data/enwik8/enwik8.zip").write_bytes(b"<html>Not found</html>")
    assert main(["data", "prepare", "enwik8", "-t", "CharLevelTokenizer"]) == 2
    told = capsys.readouterr().err
    assert "data/enwik8/enwik8.zip: the archive cannot be read" in told
    assert "fetch it again, with -f" in told
    assert "--on-error" not in told
    assert [path.name for path in Path("data/enwik8").iterdir()] == ["enwik8.zip"]


def test_prepare_stdlib(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """stdlib needs no network: two datasets of the Python files of this machine, here of a small one."""
    library = tmp_path / "lib"
    library.mkdir()
    for number in range(40):
        (library / f"m{number}.py").write_text(f"x = {number}\n" * 5)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(library)})
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "データ"))
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert main(["data", "prepare", "stdlib", "-t", "CharLevelTokenizer", "--workers", "1"]) == 0
    counts = [
        len(IndexedDataset(tmp_path / "データ" / "stdlib" / f"{name}_text_document"))
        for name in ("stdlib", "stdlib_valid")
    ]
    assert sum(counts) == 40
    assert "stdlib_valid_text_document: " in capsys.readouterr().out
    for name, message in (("books3", "there is no source for this corpus"), ("nothing", "corpus 'nothing' is unknown")):
        assert main(["data", "prepare", name]) == 2
        assert message in capsys.readouterr().err

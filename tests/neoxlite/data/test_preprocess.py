"""Text to datasets: upstream's bytes, named mistakes, and nothing left of an interrupted run."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.preprocess import Options, Progress, tokenize_files
from neoxlite.data.python_source import collect_python
from neoxlite.data.text_files import input_files, read_batches
from neoxlite.data.train_bpe import train_bpe
from neoxlite.errors import DataError
from neoxlite.tokenizers import build_tokenizer

CHARACTERS = build_tokenizer("CharLevelTokenizer")


def _lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def _texts(inputs: list[Path]) -> list[str]:
    return [text for batch in read_batches(inputs) for text in batch.columns[0]]


@pytest.mark.parametrize(
    ("run", "tokenizer", "vocab_file", "source"),
    [
        ("hf_eod", "HFTokenizer", "own_bpe_tokenizer.json", "input.jsonl"),
        ("gpt2_eod", "GPT2BPETokenizer", None, "input.jsonl"),
        ("gpt2_eod_two_inputs", "GPT2BPETokenizer", None, "input.jsonl,input2.txt"),
        ("spm_eod", "SPMTokenizer", "own_spm.model", "input_nonblank.jsonl"),
        ("char_eod", "CharLevelTokenizer", None, "input.jsonl"),
    ],
)
def test_files_equal_upstreams(
    run: str, tokenizer: str, vocab_file: str | None, source: str, golden: Path, tmp_path: Path
) -> None:
    """Upstream's preprocess_data --append-eod on the same input: the same bytes, empty texts left out."""
    folder = golden / "tokenized"
    inputs = [folder / name for name in source.split(",")]
    done = tokenize_files(
        inputs,
        str(tmp_path / run),
        build_tokenizer(tokenizer, folder / vocab_file if vocab_file else None),
        Options(append_eod=True),
    )
    for suffix in ("bin", "idx"):
        name = f"{run}_text_document.{suffix}"
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert done.documents - done.skipped == len(IndexedDataset(folder / f"{run}_text_document"))
    assert done.bytes_read == done.bytes_total == sum(path.stat().st_size for path in inputs)
    assert done.share == 1


def test_two_inputs(golden: Path, tmp_path: Path) -> None:
    """A second file follows the first; a .txt file is one document, as upstream."""
    folder = golden / "tokenized"
    inputs = [folder / "input.jsonl", folder / "input2.txt"]
    tokenize_files(inputs, str(tmp_path / "x"), CHARACTERS, Options(append_eod=True))
    dataset = IndexedDataset(tmp_path / "x_text_document")
    first = IndexedDataset(folder / "char_eod_text_document")
    assert len(dataset) == 18
    assert dataset.tokens(0, first.num_tokens).tolist() == first.tokens(0, first.num_tokens).tolist()
    assert bytes(dataset[17].tolist()[:-1]) == inputs[1].read_bytes()


def test_each_key_has_its_own_text(tmp_path: Path) -> None:
    """Two keys give two datasets of their own texts (upstream encodes the same text for both)."""
    source = _lines(tmp_path / "入力 text.jsonl", {"text": "ab", "題": "日"}, {"text": "c", "題": ""})
    done = tokenize_files([source], str(tmp_path / "出力"), CHARACTERS, Options(keys=["text", "題"]))
    texts = IndexedDataset(tmp_path / "出力_text_document")
    titles = IndexedDataset(tmp_path / "出力_題_document")
    assert [texts[number].tolist() for number in range(2)] == [[97, 98], [99]]
    assert [titles[0].tolist(), len(titles)] == [list("日".encode()), 1]
    assert (done.documents, done.skipped, done.tokens) == (2, 1, 6)


def test_limits_and_reports(tmp_path: Path) -> None:
    """--max-docs stops early; progress grows and ends at one."""
    source = _lines(tmp_path / "x.jsonl", *({"text": f"document {number} " + "x" * 1000} for number in range(5000)))
    seen: list[tuple[int, float]] = []
    done = tokenize_files(
        [source],
        str(tmp_path / "x"),
        CHARACTERS,
        Options(max_docs=4000),
        report=lambda progress: seen.append((progress.documents, progress.share)),
    )
    assert done.documents == 4000
    assert len(IndexedDataset(tmp_path / "x_text_document")) == 4000
    assert len(seen) > 1
    assert seen[-1] == (4000, 1)
    assert [share for _, share in seen] == sorted(share for _, share in seen)


def test_progress_line() -> None:
    """Rates and the rest of the time, from numbers by hand."""
    progress = Progress(documents=3000, bytes_read=6_000_000, bytes_total=24_000_000, seconds=2.0, share=0.25)
    assert progress.line() == "Processed 3,000 documents (1,500 docs/s, 3.00 MB/s), 25% done, 6 s left."
    assert Progress().line() == "Processed 0 documents (0 docs/s, 0.00 MB/s)."


def test_compressed_input(golden: Path, tmp_path: Path) -> None:
    """.jsonl.gz is read as what it holds; progress counts its bytes on disk."""
    packed = tmp_path / "input.jsonl.gz"
    packed.write_bytes(gzip.compress((golden / "tokenized" / "input.jsonl").read_bytes()))
    done = tokenize_files([packed], str(tmp_path / "char_eod"), CHARACTERS, Options(append_eod=True))
    name = "char_eod_text_document.bin"
    assert (tmp_path / name).read_bytes() == (golden / "tokenized" / name).read_bytes()
    assert done.bytes_read == packed.stat().st_size
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(DataError, match="the compressed file is truncated"):
        list(read_batches([packed]))
    packed.write_bytes(b"not gzip")
    with pytest.raises(DataError, match="Not a gzipped file"):
        list(read_batches([packed]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"text": \n', r"x.jsonl:2: not JSON \(Expecting value at column"),
        (b'{"text": "a"}\n\n["text"]\n', r"x.jsonl:3: list where an object belongs"),
        (b'{"content": "a"}\n', r"x.jsonl:1: there is no key 'text'; .*\(keys: 'content'\)"),
        (b'{"text": null}\n', r"x.jsonl:1: NoneType under the key 'text'"),
        (b'{"text": "\xff"}\n', r"x.jsonl:1: not UTF-8"),
        (b'{"text": ""}\n', r"the input holds no text"),
        (b"", r"the input holds no text"),
    ],
)
def test_damaged_input(content: bytes, message: str, tmp_path: Path) -> None:
    """A bad line is named by file and number, and no dataset is left behind."""
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "x"), CHARACTERS)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    """A mark at the beginning and CRLF line ends, as editors on Windows write them, do no harm."""
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": "b"}')
    assert _texts([tmp_path / "x.jsonl"]) == ["a", "b"]


def test_wrong_inputs(tmp_path: Path) -> None:
    """Missing files and unknown kinds are named before anything is tokenised."""
    with pytest.raises(DataError, match=r"無い.jsonl: no such file"):
        input_files([tmp_path / "無い.jsonl"])
    with pytest.raises(DataError, match="kind of file is not known") as caught:
        input_files([tmp_path / "x.parquet.zst"])
    assert ".parquet" in str(caught.value.hint)


def test_no_end_of_document(tmp_path: Path) -> None:
    """--append-eod needs a tokenizer that has one."""
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    (tmp_path / "t.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    source = _lines(tmp_path / "x.jsonl", {"text": "a"})
    with pytest.raises(DataError, match=r"no <\|endoftext\|>"):
        tokenize_files(
            [source],
            str(tmp_path / "x"),
            build_tokenizer("HFTokenizer", tmp_path / "t.json"),
            Options(append_eod=True),
        )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_command(number: signal.Signals, tmp_path: Path) -> None:
    """Killed or interrupted while it reads: no file under the final name; Ctrl-C cleans up altogether and gives 130."""
    source = _lines(tmp_path / "a.jsonl", *({"text": "x" * 100} for _ in range(600)))
    code = (
        "import os, sys, neoxlite.data.preprocess as p, neoxlite.data.commands.tokenize as c\n"
        "from neoxlite.cli import main\n"
        f"def kill(progress): os.kill(os.getpid(), {int(number)})\n"
        "real = p.tokenize_files\n"
        "c.tokenize_files = lambda *a, report, **k: real(*a, report=kill, **k)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["data", "tokenize", "--input", str(source), "--output-prefix", str(tmp_path / "x")]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--tokenizer-type", "CharLevelTokenizer"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == (130 if number == signal.SIGINT else -number), result.stderr
    assert not list(tmp_path.glob("x_text_document.*"))
    if number == signal.SIGINT:
        assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def _library(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_collect_python(tmp_path: Path) -> None:
    """Parts are disjoint, complete and repeatable; tests, copies, blank and non-UTF-8 files are left out."""
    files = {f"pkg/m{number}.py": f"x = {number}\n".encode() for number in range(60)}
    extra = {
        "test/t.py": b"t = 1\n",
        "idlelib/i.py": b"i = 1\n",
        "pkg/tests/u.py": b"u = 1\n",
        "latin.py": b"# \xe9\n",
        "blank.py": b"\n\n",
        "copy.py": b"x = 1\n",
        "data.txt": b"no\n",
    }
    root = _library(tmp_path / "lib", files | extra)
    corpus = collect_python(tmp_path / "出力", valid_fraction=0.3, stdlib=root)
    parts = {}
    for part in ("train", "valid"):
        lines = (tmp_path / "出力" / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
        parts[part] = {record["path"]: record["text"] for record in map(json.loads, lines)}
    assert not set(parts["train"].values()) & set(parts["valid"].values())
    assert len(parts["train"]) == corpus.train_files
    assert len(parts["valid"]) == corpus.valid_files
    both = parts["train"] | parts["valid"]
    assert sorted(both.values()) == sorted(data.decode() for data in files.values())
    assert corpus.train_bytes + corpus.valid_bytes == sum(map(len, files.values()))
    before = {name: (tmp_path / "出力" / name).read_bytes() for name in ("train.jsonl", "valid.jsonl")}
    collect_python(tmp_path / "出力", valid_fraction=0.3, stdlib=root)
    assert before == {name: (tmp_path / "出力" / name).read_bytes() for name in before}
    # A file stays in its part when others appear or go.
    (root / "pkg" / "m7.py").unlink()
    collect_python(tmp_path / "less", valid_fraction=0.3, stdlib=root)
    less = [json.loads(line)["path"] for line in (tmp_path / "less" / "valid.jsonl").read_text().splitlines()]
    assert set(less) == set(parts["valid"]) - {"pkg/m7.py"}


def test_collect_python_limit(tmp_path: Path) -> None:
    """A limit takes the first files of the same order; both parts get their share."""
    root = _library(tmp_path / "lib", {f"m{number}.py": f"# {number:0100d}\n".encode() for number in range(200)})
    whole = collect_python(tmp_path / "whole", valid_fraction=0.5, stdlib=root)
    half = collect_python(tmp_path / "half", valid_fraction=0.5, max_mib=100 * 103 / 2**20, stdlib=root)
    assert (half.train_files + half.valid_files, whole.train_files + whole.valid_files) == (100, 200)
    assert half.valid_files > 20
    for name in ("train.jsonl", "valid.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes().startswith((tmp_path / "half" / name).read_bytes())


def test_collect_python_refused(tmp_path: Path) -> None:
    """A library without source and a fraction that is none are explained; no half result is left."""
    with pytest.raises(DataError, match="0 training and 0 held-out files"):
        collect_python(tmp_path / "out", stdlib=tmp_path / "empty")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(DataError, match=r"the valid fraction is 1\.5"):
        collect_python(tmp_path / "out", valid_fraction=1.5)


def test_train_bpe(tmp_path: Path) -> None:
    """A trained tokenizer has its size, its special tokens and every byte, and is the same each time."""
    source = _lines(
        tmp_path / "x.jsonl", *({"text": f"def f_{number}(x): return x * {number}"} for number in range(50))
    )
    assert train_bpe([source], tmp_path / "新しい" / "a.json", 300) == 300
    train_bpe([source], tmp_path / "b.json", 300)
    assert (tmp_path / "新しい" / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    tokenizer = build_tokenizer("HFTokenizer", tmp_path / "b.json")
    assert (tokenizer.vocab_size, tokenizer.eod, tokenizer.pad) == (300, 0, 1)
    assert tokenizer.decode(tokenizer.encode("日本語 ☃ \x00")) == "日本語 ☃ \x00"
    assert len(tokenizer.encode("return x *")) < len("return x *")


def test_train_bpe_refused(tmp_path: Path) -> None:
    """Too small a vocabulary, no text: named, and nothing is written."""
    source = _lines(tmp_path / "x.jsonl", {"text": ""})
    with pytest.raises(DataError, match="a vocabulary of 200 is too small") as caught:
        train_bpe([source], tmp_path / "t.json", 200)
    assert "258" in str(caught.value.hint)
    with pytest.raises(DataError, match="holds no text"):
        train_bpe([source], tmp_path / "t.json", 300)
    assert not (tmp_path / "t.json").exists()

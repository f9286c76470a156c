"""Text of every kind of file, in shards, with damage: the same documents, or the file and the line."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from neoxlite.cli import main
from neoxlite.data.bad_input import BadInput
from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.preprocess import Options, output_prefixes, tokenize_files
from neoxlite.data.shard import Shard
from neoxlite.data.text_files import input_files, read_batches
from neoxlite.data.writer import DatasetWriter
from neoxlite.errors import DataError
from neoxlite.tokenizers import build_tokenizer

CHARACTERS = build_tokenizer("CharLevelTokenizer")
TEXTS = ["first", "日本語 😀", "third\nline", "x" * 5000]
LINES = "".join(json.dumps({"text": text, "n": 1}, ensure_ascii=False) + "\n" for text in TEXTS).encode()


def _texts(paths: list[Path], **keywords: Any) -> list[str]:
    return [text for batch in read_batches(paths, **keywords) for text in batch.columns[0]]


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return packed.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.mkdir("folder")
    return packed.getvalue()


PACKED: dict[str, Callable[[], bytes]] = {
    "x.jsonl": lambda: LINES,
    "x.json": lambda: LINES,
    "x.jsonl.gz": lambda: gzip.compress(LINES),
    "x.jsonl.zst": lambda: zstd.compress(LINES),
    "two-frames.jsonl.zst": lambda: zstd.compress(LINES[:100]) + zstd.compress(LINES[100:]),
    "x.jsonl.xz": lambda: lzma.compress(LINES),
    "x.jsonl.bz2": lambda: bz2.compress(LINES),
    "x.tar": lambda: _tar({"a.jsonl": LINES}),
    "x.jsonl.zst.tar": lambda: _tar({"a.jsonl.zst": zstd.compress(LINES)}),
    "x.tar.gz": lambda: gzip.compress(_tar({f"{number}": text.encode() for number, text in enumerate(TEXTS)})),
    "x.tgz": lambda: gzip.compress(_tar({"日本/a.jsonl": LINES})),
    "nested.tar.xz": lambda: lzma.compress(_tar({"in.tar.gz": gzip.compress(_tar({"a.jsonl": LINES}))})),
    "x.zip": lambda: _zip({f"{number}.txt": text.encode() for number, text in enumerate(TEXTS)}),
    "lines.zip": lambda: _zip({"a.jsonl.gz": gzip.compress(LINES)}),
}


@pytest.mark.parametrize("name", PACKED)
def test_every_kind_has_the_same_documents(name: str, tmp_path: Path) -> None:
    """However it is packed, the same documents in the same order, and all bytes are counted."""
    path = tmp_path / name
    path.write_bytes(PACKED[name]())
    batches = list(read_batches(input_files([path])))
    assert [text for batch in batches for text in batch.columns[0]] == TEXTS
    assert batches[-1].bytes_read == path.stat().st_size
    assert [batch.bytes_read for batch in batches] == sorted(batch.bytes_read for batch in batches)


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
def test_parquet(kind: pyarrow.DataType, tmp_path: Path) -> None:
    """Columns of Parquet, also several, in rows of many groups."""
    texts = [f"{number} 日本" for number in range(1300)]
    table = pyarrow.table({"text": pyarrow.array(texts, kind), "題": [text[::-1] for text in texts], "n": range(1300)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=400)
    batches = list(read_batches(input_files([tmp_path / "x.parquet"]), ("text", "題")))
    assert [text for batch in batches for text in batch.columns[0]] == texts
    assert [text for batch in batches for text in batch.columns[1]] == [text[::-1] for text in texts]
    assert batches[-1].bytes_read == (tmp_path / "x.parquet").stat().st_size
    for key, message in (("body", "no column 'body' .*'text', '題', 'n'"), ("n", "column 'n' is of type int64")):
        with pytest.raises(DataError, match=message):
            _texts([tmp_path / "x.parquet"], keys=(key,))


def test_parquet_without_values(tmp_path: Path) -> None:
    """An empty cell is named by its row, or left out and counted; a cut file is named."""
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", None, "c"]}), path)
    with pytest.raises(DataError, match=r"x\.parquet, row 2: nothing under 'text'"):
        _texts([path])
    bad = BadInput(skip=True)
    assert _texts([path], bad=bad) == ["a", "c"]
    assert bad.documents == 1
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"x\.parquet: damaged behind row 0"):
        _texts([path])


@pytest.mark.parametrize(
    ("name", "data", "library"),
    [("x.parquet", b"PAR1", "pyarrow"), ("x.jsonl.zst", zstd.compress(LINES), "backports.zstd")],
)
def test_without_the_library_of_a_kind(
    name: str, data: bytes, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its library is not installed, a file says which; files that need none are read."""
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / name).write_bytes(data)
    (tmp_path / "x.jsonl").write_bytes(LINES)
    with pytest.raises(DataError, match=rf"file needs the library {library}, which cannot be imported"):
        _texts([tmp_path / name])
    assert _texts([tmp_path / "x.jsonl"]) == TEXTS


def test_folder(tmp_path: Path) -> None:
    """A folder stands for its files of known kinds, by name, as in upstream's reader; one without any is an error."""
    for name in ("b.jsonl", "a.txt", "notes.md"):
        (tmp_path / name).write_bytes(LINES if name == "b.jsonl" else b"alone")
    assert _texts(input_files([tmp_path])) == ["alone", *TEXTS]
    empty = tmp_path / "空"
    empty.mkdir()
    with pytest.raises(DataError, match="空: the folder has no files to read"):
        input_files([empty])


def test_lines_of_strings_and_lists(tmp_path: Path) -> None:
    """As in upstream's reader, a line may be a string, and a list of strings is joined by blank lines."""
    (tmp_path / "x.jsonl").write_text('"bare"\n{"text": ["a", "b"]}\n{"text": "c"}\n', encoding="utf-8")
    assert _texts([tmp_path / "x.jsonl"]) == ["bare", "a\n\nb", "c"]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.text(max_size=30), max_size=12), st.lists(st.text(max_size=30), max_size=5), st.integers(1, 9))
def test_shards_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str], count: int
) -> None:
    """The documents of all shards in order are those of one run, for any number of shards and lengths of lines."""
    folder = tmp_path_factory.getbasetemp()
    paths = [folder / "one.jsonl", folder / "two.jsonl", folder / "three.jsonl.gz", folder / "four.txt"]
    paths[0].write_text("".join(json.dumps({"text": text}) + "\n\n" for text in first), encoding="utf-8")
    paths[1].write_text("\n".join(json.dumps({"text": text}) for text in second), encoding="utf-8")
    paths[2].write_bytes(gzip.compress(paths[0].read_bytes()))
    paths[3].write_text("plain", encoding="utf-8")
    together = [_texts(paths, shard=Shard(number, count)) for number in range(1, count + 1)]
    assert [text for part in together for text in part] == _texts(paths) == [*first, *second, *first, "plain"]


def test_line_numbers_in_a_shard(tmp_path: Path) -> None:
    """A bad line is named by its number in the file, also by a run that began in the middle."""
    lines = [json.dumps({"text": "x" * 50}) for _ in range(100)]
    lines[80] = "{"
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert len(_texts([tmp_path / "x.jsonl"], shard=Shard(1, 2))) in (49, 50, 51)
    with pytest.raises(DataError, match=r"x\.jsonl:81: not JSON"):
        _texts([tmp_path / "x.jsonl"], shard=Shard(2, 2))


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3"])
def test_no_shard(text: str) -> None:
    """What is no shard is named."""
    with pytest.raises(DataError, match="is not I/N"):
        Shard.parse(text)


def test_sharded_run_resumes_and_merges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards give the datasets of one run; a finished one is not made again unless the input changed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    Path("in.jsonl").write_bytes(LINES * 7)
    tokenize = ["data", "tokenize", "--input", "in.jsonl", "--tokenizer-type", "CharLevelTokenizer", "--append-eod"]
    assert main([*tokenize, "--output-prefix", "whole"]) == 0
    for number in (1, 2, 3):
        assert main([*tokenize, "--output-prefix", "part", "--shard", f"{number}/3"]) == 0
    prefixes = [f"part_{number}of3_text_document" for number in (1, 2, 3)]
    made = Path(f"{prefixes[1]}.bin").stat().st_mtime_ns
    capsys.readouterr()
    assert main([*tokenize, "--output-prefix", "part", "--shard", "2/3"]) == 0
    assert "already there from an earlier run" in capsys.readouterr().out
    assert Path(f"{prefixes[1]}.bin").stat().st_mtime_ns == made
    with DatasetWriter("joined", "uint16") as writer:
        for prefix in prefixes:
            writer.append(IndexedDataset(prefix))
    for suffix in ("bin", "idx"):
        assert Path(f"joined.{suffix}").read_bytes() == Path(f"whole_text_document.{suffix}").read_bytes()
    with Path("in.jsonl").open("ab") as file:
        file.write(LINES)
    assert main([*tokenize, "--output-prefix", "part", "--shard", "2/3"]) == 0
    assert "already there" not in capsys.readouterr().out


def test_names_of_shards_sort() -> None:
    """Ten shards or more have names of one length."""
    assert output_prefixes("p", Options(shard=Shard(3, 12))) == ["p_03of12_text_document"]


BAD_LINES = b'{"text": "good"}\n{"text": \n{"no": 1}\n{"text": "\xff"}\n[1]\n{"text": "also"}\n'


def test_bad_lines_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """--on-error skip leaves out what is damaged, names the first ones, and counts all."""
    (tmp_path / "x.jsonl").write_bytes(BAD_LINES * 5)
    done = tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "x"), CHARACTERS, Options(skip_bad=True))
    assert (done.documents, done.bad.documents, done.bad.files) == (10, 20, 0)
    assert str(done.bad.summary()).startswith("skipped: 20 damaged documents; the first: input ")
    assert "x.jsonl:2: not JSON" in caplog.text
    assert "x.jsonl:3: there is no key 'text'" in caplog.text
    assert len(caplog.records) == 10


def test_stop_names_the_other_policy(tmp_path: Path) -> None:
    """The default stops at the first, with the way round it."""
    (tmp_path / "x.jsonl").write_bytes(BAD_LINES)
    with pytest.raises(DataError, match=r"x\.jsonl:2: not JSON") as caught:
        _texts([tmp_path / "x.jsonl"])
    assert caught.value.hint == (
        'Each line must be an object such as {"text": "..."}; to skip what is damaged: --on-error skip'
    )


def _refusal(path: Path) -> DataError | None:
    """Read a file and return its error; None if it is read."""
    try:
        _texts([path])
    except DataError as error:
        return error
    return None


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("name", [name for name in PACKED if name not in ("x.jsonl", "x.json")])
def test_damaged_containers(name: str, tmp_path: Path) -> None:
    """Cut anywhere or with a bit flipped, a packed file gives its documents or one message that names it."""
    good = PACKED[name]()
    for changed in [
        *(good[:length] for length in range(0, len(good), max(len(good) // 23, 1))),
        *(_flipped(good, at) for at in range(0, len(good), max(len(good) // 23, 1))),
        b"no such format at all" * 40,
    ]:
        (tmp_path / name).write_bytes(changed)
        refused = _refusal(tmp_path / name)
        assert refused is None or (name in refused.message and refused.hint)
        bad = BadInput(skip=True)
        kept = _texts([tmp_path / name], bad=bad)
        assert len(kept) <= len(TEXTS) or name == "x.tar"


def test_the_rest_is_read_after_a_broken_file(tmp_path: Path) -> None:
    """With skip, a file that breaks off is counted and the next one is read."""
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES)[:-20])
    (tmp_path / "b.jsonl").write_bytes(LINES)
    bad = BadInput(skip=True)
    kept = _texts([tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"], bad=bad)
    assert kept[-len(TEXTS) :] == TEXTS
    assert bad.files == 1
    assert "the compressed file is truncated" in str(bad.summary())


def test_encrypted_archive(tmp_path: Path) -> None:
    """A zip member that needs a password is named, not a traceback."""
    packed = bytearray(_zip({"a.txt": b"secret"}))
    packed[6] |= 1  # the flag of encryption, in the local header and in the directory
    directory = packed.index(b"PK\x01\x02")
    packed[directory + 8] |= 1
    (tmp_path / "x.zip").write_bytes(packed)
    with pytest.raises(DataError, match=r"x\.zip: the archive cannot be read .*password"):
        _texts([tmp_path / "x.zip"])


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: json.dumps({"text": text}).encode()))
def test_any_line(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    """The fast reader and json agree on every line: the same text, or both refuse."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    bad = BadInput(skip=True)
    expected = []
    for part in path.read_bytes().split(b"\n"):
        try:
            value = json.loads(part.decode())
        except ValueError:
            continue
        if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("text"), str)):
            expected.append(value if isinstance(value, str) else value["text"])
    assert _texts([path], bad=bad) == expected


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "n": ' + b"1" * 5000 + b"}",
        b'{"text": "a", "n": ' + b"[" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"text": "a", "n": NaN}',
        b'{"text": "\\ud83d"}',
        b'{"text": "a"}{"text": "b"}',
        b"\x00" * 100,
        b"\xef\xbb\xbf" * 2,
    ],
)
def test_strange_lines(line: bytes, tmp_path: Path) -> None:
    """Numbers of thousands of digits, thousands of brackets, zero bytes: a text or a message with the line."""
    (tmp_path / "x.jsonl").write_bytes(b'{"text": "a"}\n' + line + b"\n")
    refused = _refusal(tmp_path / "x.jsonl")
    assert refused is None or "x.jsonl:2: " in refused.message
    assert len(_texts([tmp_path / "x.jsonl"], bad=BadInput(skip=True))) == 2 - (refused is not None)


def test_ftfy_equals_upstreams(golden: Path, tmp_path: Path) -> None:
    """--ftfy gives upstream's bytes (the recorded version of ftfy is that of the tests)."""
    done = tokenize_files(
        [golden / "tokenized" / "input.jsonl"],
        str(tmp_path / "gpt2_eod_ftfy"),
        build_tokenizer("GPT2BPETokenizer"),
        Options(append_eod=True, ftfy=True),
    )
    assert done.documents == 18
    for suffix in ("bin", "idx"):
        name = f"gpt2_eod_ftfy_text_document.{suffix}"
        assert (tmp_path / name).read_bytes() == (golden / "tokenized" / name).read_bytes()

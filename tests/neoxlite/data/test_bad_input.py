"""Damaged datasets and vocabularies: cut, with flipped bits, of wrong types. Each is a message, or harmless.

The fast tests take a sample of the places, those marked ``full`` all of them.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neoxlite.data.indexed import IndexedDataset
from neoxlite.data.preprocess import Options, tokenize_files
from neoxlite.tokenizers import build_tokenizer
from neoxlite.tokenizers.gpt2_vocabulary import MERGES_FILE, vocabulary_json
from tests.neoxlite.fuzz.targets import check_dataset, refusal

DATASETS = ["u16_multiseq", "u16_emptydoc", "i32_simple", "cached_i32"]


def _sections(name: str, length: int) -> list[int]:
    """Return where the parts of an index begin, and the bytes around."""
    header = [0, 8, 9, 16, 17, 18, 24, 26, 32, 34, 40, 48, 56]
    return sorted({at + by for at in (*header, length) for by in (-1, 0, 1) if 0 <= at + by < length})


@pytest.mark.parametrize("suffix", ["idx", "bin"])
@pytest.mark.parametrize("name", DATASETS)
def test_cut_at_section_boundaries(name: str, suffix: str, copied: Callable[[str, str], str]) -> None:
    """Cut around the border of every part: always refused, with the file's name."""
    prefix = copied(name, "日本")
    path = Path(f"{prefix}.{suffix}")
    good = path.read_bytes()
    for length in _sections(name, len(good)):
        path.write_bytes(good[:length])
        refused = refusal(lambda: IndexedDataset(prefix))
        assert refused is not None
        assert str(path) in refused.message
        check_dataset(prefix, f"{name}.{suffix} cut at {length}")


def _flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ (1 << bit % 8)]) + data[bit // 8 + 1 :]


@pytest.mark.parametrize("name", DATASETS)
def test_some_flipped_bits(name: str, copied: Callable[[str, str], str]) -> None:
    """A flipped bit in the index or the tokens is found or changes tokens only."""
    _flip_bits(copied(name, "d"), step=37)


@pytest.mark.full
@pytest.mark.parametrize("name", DATASETS)
def test_all_flipped_bits(name: str, copied: Callable[[str, str], str]) -> None:
    """The same for every bit."""
    _flip_bits(copied(name, "d"), step=1)


def _flip_bits(prefix: str, step: int) -> None:
    for suffix in ("idx", "bin"):
        path = Path(f"{prefix}.{suffix}")
        good = path.read_bytes()
        for bit in range(0, 8 * len(good), step):
            path.write_bytes(_flip(good, bit))
            check_dataset(prefix, f"{path.name}, bit {bit}")
        path.write_bytes(good)


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**32, 2**31 - 1, 10**12])
@pytest.mark.parametrize("at", [18, 26])
def test_huge_counts(at: int, value: int, copied: Callable[[str, str], str]) -> None:
    """Counts that no file can hold are refused before anything is allocated."""
    prefix = copied("u16_simple", "d")
    path = Path(f"{prefix}.idx")
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, at, value)
    path.write_bytes(data)
    refused = refusal(lambda: IndexedDataset(prefix))
    assert refused is not None
    assert str(value) in refused.message
    check_dataset(prefix, f"{value} at {at}")


@pytest.mark.parametrize("offset", [-(2**63), 2**63 - 1, -1, -16])
@pytest.mark.parametrize("more", [b"", b"\0" * 8])
def test_repair_of_offsets_beyond_the_file(offset: int, more: bytes, copied: Callable[[str, str], str]) -> None:
    """An offset whose distance to the one before does not fit in 64 bits is none, and nothing is divided by it."""
    prefix = copied("i32_simple", "d")
    path = Path(f"{prefix}.idx")
    data = bytearray(path.read_bytes())
    sequences = struct.unpack_from("<Q", data, 18)[0]
    struct.pack_into("<q", data, 34 + 4 * sequences + 8 * (sequences - 1), offset)
    path.write_bytes(data + more)
    check_dataset(prefix, f"offset {offset}")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}", b"\x80\x04]", b"PK\x03\x04" * 20, b"\x1f\x8b\x08" * 20, b"\0" * 99]
)
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_other_files_under_the_name(content: bytes, suffix: str, copied: Callable[[str, str], str]) -> None:
    """Text, pickles, archives and zeros are no dataset."""
    prefix = copied("u16_simple", "d")
    Path(f"{prefix}.{suffix}").write_bytes(content)
    refused = refusal(lambda: IndexedDataset(prefix))
    assert refused is not None
    assert f"{prefix}.{suffix}" in refused.message
    check_dataset(prefix, str(content))


@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_folders_and_dead_links(suffix: str, copied: Callable[[str, str], str]) -> None:
    """A folder or a link to nothing under the name of a file."""
    prefix = copied("u16_simple", "d")
    path = Path(f"{prefix}.{suffix}")
    path.unlink()
    path.symlink_to("nowhere")
    assert "does not exist" in str(refusal(lambda: IndexedDataset(prefix)))
    path.unlink()
    path.mkdir()
    assert f"{path} does not exist" in str(refusal(lambda: IndexedDataset(prefix)))


VOCABULARIES = {
    "HFTokenizer": "own_bpe_tokenizer.json",
    "SPMTokenizer": "own_spm.model",
    "GPT2BPETokenizer": "vocab.json",
}


@contextlib.contextmanager
def _vocabulary(tokenizer_type: str, golden: Path, folder: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yield the file to damage, and what builds and uses the tokenizer."""
    path, merges = folder / f"語彙-{VOCABULARIES[tokenizer_type]}", folder / "merges.txt"
    if tokenizer_type == "GPT2BPETokenizer":
        model = json.loads((golden / "tokenized" / "own_bpe_tokenizer.json").read_text(encoding="utf-8"))["model"]
        path.write_text(json.dumps(model["vocab"]), encoding="utf-8")
        pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        merges.write_text("\n".join(pairs), encoding="utf-8")
    else:
        path.write_bytes((golden / "tokenized" / VOCABULARIES[tokenizer_type]).read_bytes())

    def use() -> None:
        tokenizer = build_tokenizer(tokenizer_type, path, merges)
        tokenizer.decode([*tokenizer.encode("Hello 日本 😀\n"), tokenizer.vocab_size + 7])

    yield path, use


def _damage(tokenizer_type: str, golden: Path, folder: Path, count: int) -> None:
    draw = random.Random(0)
    with _vocabulary(tokenizer_type, golden, folder) as (path, use):
        use()
        good = path.read_bytes()
        for number in range(count):
            # Half of the places are near the beginning, where the structure is.
            place = draw.randrange(len(good) if number % 2 else min(len(good), 2000))
            path.write_bytes(good[:place] if number % 3 == 0 else _flip(good, 8 * place + draw.randrange(8)))
            refused = refusal(use)
            assert refused is None or str(path) in refused.message
            assert refused is None or refused.hint
            assert number % 3 or refused is not None or tokenizer_type == "SPMTokenizer"


@pytest.mark.parametrize("tokenizer_type", VOCABULARIES)
def test_damaged_vocabularies(tokenizer_type: str, golden: Path, tmp_path: Path) -> None:
    """Cut or with a flipped bit, a vocabulary is refused with its name, or is another working one."""
    _damage(tokenizer_type, golden, tmp_path, 24)


@pytest.mark.full
@pytest.mark.parametrize("tokenizer_type", VOCABULARIES)
def test_many_damaged_vocabularies(tokenizer_type: str, golden: Path, tmp_path: Path) -> None:
    """The same for two thousand places."""
    _damage(tokenizer_type, golden, tmp_path, 2000)


def _spm_pieces(data: bytes) -> list[int]:
    """Return where each piece of a SentencePiece model ends: the library itself takes a model cut there."""
    ends, position = [], 0
    while data[position] == 0x0A and data[position + 1] < 0x80:
        position += 2 + data[position + 1]
        ends.append(position)
    return ends


def test_sentence_piece_cut_between_pieces(golden: Path, tmp_path: Path) -> None:
    """Cut where a piece ends, a model is one with fewer pieces to the library; here it is refused with the byte."""
    good = (golden / "tokenized" / "own_spm.model").read_bytes()
    ends = _spm_pieces(good)
    assert len(ends) == 600
    path = tmp_path / "短.model"
    for end in (*ends[:3], *ends[3:-3:50], *ends[-3:]):
        for length in (end - 1, end, end + 1):
            path.write_bytes(good[:length])
            refused = refusal(lambda: build_tokenizer("SPMTokenizer", path))
            assert refused is not None
            assert f"{path}: the SentencePiece model is" in refused.message
            assert "truncated at byte " in refused.message


@pytest.mark.full
def test_sentence_piece_cut_everywhere(golden: Path, tmp_path: Path) -> None:
    """Around the end of every piece, and of what follows: a model that is taken gives the ids of the whole one."""
    good = (golden / "tokenized" / "own_spm.model").read_bytes()
    whole = build_tokenizer("SPMTokenizer", golden / "tokenized" / "own_spm.model").encode("日本 one two")
    path = tmp_path / "x.model"
    for end in (*_spm_pieces(good), *range(len(good) - 300, len(good), 3)):
        for length in (end - 1, end, end + 1):
            path.write_bytes(good[:length])
            if refusal(lambda: build_tokenizer("SPMTokenizer", path)) is None:
                assert build_tokenizer("SPMTokenizer", path).encode("日本 one two") == whole


@pytest.mark.parametrize("lines", [1, 2, 1000, 49_000])
def test_merges_cut_between_lines(lines: int, tmp_path: Path) -> None:
    """Merges that break off at the end of a line are pairs all the same, and would make shorter tokens."""
    kept = MERGES_FILE.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
    (tmp_path / "merges.txt").write_text("".join(kept), encoding="utf-8")
    (tmp_path / "vocab.json").write_text(vocabulary_json(), encoding="utf-8")
    refused = refusal(lambda: build_tokenizer("GPT2BPETokenizer", tmp_path / "vocab.json", tmp_path / "merges.txt"))
    assert refused is not None
    assert f"merges.txt: {50_001 - lines:,} tokens of vocab_file" in refused.message
    assert f"{lines - 1:,} merges" in str(refused.hint)


WRONG_JSON = [
    b"",
    b"null",
    b"[]",
    b'""',
    b"0",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a": 1e999}',
    b'{"model": {}}',
    b'{"model": {"type": "BPE", "vocab": [], "merges": {}}}',
    b"\xff\xfe{\x00}\x00",
    b"\x00" * 1000,
]


@pytest.mark.parametrize("content", WRONG_JSON, ids=range(len(WRONG_JSON)))
@pytest.mark.parametrize("tokenizer_type", [*VOCABULARIES, "HFGPT2Tokenizer"])
def test_wrong_types_of_vocabularies(content: bytes, tokenizer_type: str, tmp_path: Path) -> None:
    """JSON of another shape, numbers of thousands of digits, brackets without end: refused with the file's name."""
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        (tmp_path / name).write_bytes(content)
    path = tmp_path if tokenizer_type == "HFGPT2Tokenizer" else tmp_path / "vocab.json"
    refused = refusal(lambda: build_tokenizer(tokenizer_type, path, tmp_path / "merges.txt"))
    assert refused is not None
    assert str(tmp_path) in refused.message
    assert refused.hint


@pytest.mark.parametrize("content", [b"a\n", b"a b c\n", b"#version\na\n", b"\xff\n", b"a b\n" * 10, b"\0"])
def test_wrong_merges(content: bytes, tmp_path: Path) -> None:
    """Merges that are no pairs, or of tokens that are not in the vocabulary."""
    (tmp_path / "merges.txt").write_bytes(content)
    (tmp_path / "vocab.json").write_text('{"<|endoftext|>": 0, "x": 1}', encoding="utf-8")
    refused = refusal(lambda: build_tokenizer("GPT2BPETokenizer", tmp_path / "vocab.json", tmp_path / "merges.txt"))
    assert refused is not None
    assert "merges.txt" in refused.message


def test_the_built_in_merges_are_not_touched() -> None:
    """The tests above work on copies."""
    assert MERGES_FILE.stat().st_size == 456_318


@pytest.mark.full
def test_many_damaged_lines(tmp_path: Path) -> None:
    """Thousands of flipped bits in JSON lines: what is left out and what is kept are all the lines."""
    draw = random.Random(0)
    good = "".join(
        json.dumps({"text": f'line {number} 日本 \\ "', "n": [1, {}]}) + "\n" for number in range(50)
    ).encode()
    characters = build_tokenizer("CharLevelTokenizer")
    for _ in range(3000):
        (tmp_path / "x.jsonl").write_bytes(_flip(good, draw.randrange(8 * len(good))))
        done = tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "x"), characters, Options(skip_bad=True))
        assert done.documents + done.bad.documents in (49, 50, 51)  # a flip may make or take a line end
        assert done.bad.documents <= 2

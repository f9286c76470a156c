"""Tokenizers give upstream's ids; wrong files and types are refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer, build_tokenizer

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenized"
TOKENIZER_JSON = GOLDEN / "own_bpe_tokenizer.json"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Return upstream's ids and texts."""
    read: dict[str, Any] = json.loads((GOLDEN / "tokenized.json").read_text(encoding="utf-8"))
    assert len(read["texts"]) == 18
    return read


@pytest.fixture(scope="module")
def gpt2_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write the golden tokenizer's vocabulary and merges in GPT-2's two files, in a folder with a Japanese name."""
    model = json.loads(TOKENIZER_JSON.read_text(encoding="utf-8"))["model"]
    folder = tmp_path_factory.mktemp("語彙")
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    return folder / "vocab.json", folder / "merges.txt"


def _equal_to_upstream(tokenizer: Tokenizer, texts: list[str], told: dict[str, Any]) -> None:
    assert [tokenizer.encode(text) for text in texts] == told["ids"]
    assert tokenizer.encode_batch(texts) == told["ids"]
    assert (tokenizer.vocab_size, tokenizer.eod, tokenizer.pad) == (
        told["vocab_size"],
        told["eod"],
        told["pad_id_attribute"],
    )


def test_hf_tokenizer(told: dict[str, Any]) -> None:
    """HFTokenizer: ids, texts and special tokens as upstream."""
    tokenizer = build_tokenizer("hftokenizer", TOKENIZER_JSON)
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["HFTokenizer"])
    decoded = [tokenizer.decode(ids) for ids in told["tokenizers"]["HFTokenizer"]["ids"]]
    assert decoded == told["tokenizers"]["HFTokenizer"]["detokenized"]


def test_gpt2_tokenizer(told: dict[str, Any], gpt2_files: tuple[Path, Path]) -> None:
    """GPT2BPETokenizer from two files is the same tokenizer; decoding writes <|endoftext|>, as GPT-2's does."""
    tokenizer = build_tokenizer("GPT2BPETokenizer", *gpt2_files)
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["HFTokenizer"])
    for text in told["texts"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_char_level_tokenizer(told: dict[str, Any]) -> None:
    """CharLevelTokenizer: upstream's ids; decoding keeps what upstream's loses."""
    tokenizer = build_tokenizer("CharLevelTokenizer")
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["CharLevelTokenizer"])
    for text in told["texts"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([72, 105, 400, 0xE6]) == "Hi��"


def test_any_text_survives() -> None:
    """Byte-level tokenizers lose nothing; special tokens in a text are the exception, which decoding drops."""
    characters, pairs = build_tokenizer("CharLevelTokenizer"), build_tokenizer("HFTokenizer", TOKENIZER_JSON)

    @settings(deadline=None, derandomize=True)
    @given(st.text())
    def check(text: str) -> None:
        assert characters.decode(characters.encode(text)) == text
        assert "<|" in text or pairs.decode(pairs.encode(text)) == text

    check()


@pytest.mark.parametrize("arguments", [("CharLevelTokenizer",), ("HFTokenizer", TOKENIZER_JSON)])
def test_lone_surrogates(arguments: tuple[Any, ...]) -> None:
    """JSON may hold half a surrogate pair, which UTF-8 cannot: it becomes a question mark, not a crash."""
    tokenizer = build_tokenizer(*arguments)
    assert tokenizer.decode(tokenizer.encode("a\ud83db")) == "a?b"
    assert tokenizer.encode_batch(["a\ud83db"]) == [tokenizer.encode("a?b")]


@pytest.mark.parametrize("name", ["SPMTokenizer", "TiktokenTokenizer", "HFGPT2Tokenizer", "spmtokenizer"])
def test_not_yet(name: str) -> None:
    """GPT-NeoX's other tokenizers are refused with what there is instead."""
    with pytest.raises(DataError, match=f"{name} is not supported yet") as caught:
        build_tokenizer(name, "x.model")
    assert "HFTokenizer" in str(caught.value.hint)


def test_refused_arguments(tmp_path: Path, gpt2_files: tuple[Path, Path]) -> None:
    """Unknown types and missing files are named."""
    vocabulary, merges = gpt2_files
    for arguments, message in (
        (("Word2Vec",), "tokenizer_type Word2Vec is unknown"),
        (("HFTokenizer",), "HFTokenizer needs a vocab_file"),
        (("GPT2BPETokenizer", vocabulary), "GPT2BPETokenizer needs a merge_file"),
        (("HFTokenizer", tmp_path / "無い.json"), "無い.json: No such file"),
        (("HFTokenizer", tmp_path), "Is a directory"),
        (("GPT2BPETokenizer", vocabulary, tmp_path / "none"), "merge_file .*none: No such file"),
        (("HFTokenizer", vocabulary), "no tokenizer"),
        (("GPT2BPETokenizer", merges, merges), r"merges.txt:1: not JSON"),
        (("GPT2BPETokenizer", TOKENIZER_JSON, merges), "not an object of token and id"),
        (("GPT2BPETokenizer", vocabulary, vocabulary), r"vocab.json:1: .* is not a pair of tokens"),
    ):
        with pytest.raises(DataError, match=message):
            build_tokenizer(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ('{"a": 0, "b": 2}', "the ids are not 0 to 1, each once"),
        ('{"a": 0, "b": true}', "not an object of token and id"),
        ('["a"]', "not an object of token and id"),
        ('{"a": 0, "b": 1, "ab": 2}', r"there is no <\|endoftext\|>"),
        ('{"a": 0, "<|endoftext|>": 1}', "does not fit vocab_file"),
    ],
)
def test_damaged_vocabulary(vocabulary: str, message: str, tmp_path: Path) -> None:
    """A vocabulary that cannot be one is refused before training with it."""
    (tmp_path / "vocab.json").write_text(vocabulary, encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        build_tokenizer("GPT2BPETokenizer", tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_not_utf8(tmp_path: Path) -> None:
    """A binary file given as vocabulary is not read as text."""
    (tmp_path / "spm.model").write_bytes(b"\n\x0c\n\x05\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8 text"):
        build_tokenizer("HFTokenizer", tmp_path / "spm.model")


def test_library_is_imported_on_use() -> None:
    """Neither the tokenizers library nor torch is imported by what needs neither."""
    code = (
        "import sys; import neoxlite.data, neoxlite.cli.data; from neoxlite.tokenizers import build_tokenizer\n"
        "build_tokenizer('CharLevelTokenizer').encode('x')\n"
        "print([name for name in ('torch', 'tokenizers', 'transformers', 'deepspeed') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"

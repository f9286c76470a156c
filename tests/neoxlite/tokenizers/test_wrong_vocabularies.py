"""Wrong files and types of tokenizers are refused in words."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from neoxlite.errors import DataError
from neoxlite.tokenizers import build_tokenizer
from tests.neoxlite.tokenizers.samples import GOLDEN, TOKENIZER_JSON, openai_encoding


@pytest.mark.parametrize("name", ["p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"])
def test_tiktoken_cached(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding that is not in tiktoken's cache, or damaged there, is named with its address; nothing is loaded."""
    import tiktoken

    def refuse(*args: object) -> None:
        raise AssertionError("the library is asked for a file that is not there")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    told = openai_encoding(name)
    with pytest.raises(DataError, match=f"{name}: the encoding is not on this machine") as caught:
        build_tokenizer("TiktokenTokenizer", name)
    assert told["url"] in str(caught.value.hint)
    cached = tmp_path / hashlib.sha1(told["url"].encode()).hexdigest()
    cached.write_bytes(b"IQ== 0\n")
    with pytest.raises(DataError, match="is damaged"):
        build_tokenizer("TiktokenTokenizer", name)
    assert cached.exists()
    digest = {b"IQ== 0\n": told["sha256"]}
    monkeypatch.setattr(hashlib, "sha256", lambda data: SimpleNamespace(hexdigest=lambda: digest[data]))
    with pytest.raises(AssertionError, match="the library is asked"):
        build_tokenizer("TiktokenTokenizer", name)


def test_wrong_kind_names_the_right_one(tmp_path: Path, gpt2_files: tuple[Path, Path]) -> None:
    """Each kind of file under each wrong tokenizer_type is answered with the type that fits it."""
    ranks = tmp_path / "o.tiktoken"
    ranks.write_bytes(b"IQ== 0\nIg== 1\n")
    vocabulary, merges = gpt2_files
    fitting = {
        TOKENIZER_JSON: "tokenizer_type: HFTokenizer",
        GOLDEN / "own_spm.model": "tokenizer_type: SPMTokenizer",
        vocabulary: "tokenizer_type: GPT2BPETokenizer",
        merges: "set it as merge_file",
        ranks: "tokenizer_type: TiktokenTokenizer",
        tmp_path: "tokenizer_type: HFGPT2Tokenizer",
    }
    wrong = {
        "HFTokenizer": [GOLDEN / "own_spm.model", vocabulary, merges, ranks, tmp_path],
        "SPMTokenizer": [TOKENIZER_JSON, vocabulary, merges, ranks],
        "GPT2BPETokenizer": [TOKENIZER_JSON, GOLDEN / "own_spm.model", merges, ranks, tmp_path],
        "HFGPT2Tokenizer": [TOKENIZER_JSON, GOLDEN / "own_spm.model", vocabulary, merges, ranks],
    }
    for tokenizer_type, files in wrong.items():
        for path in files:
            with pytest.raises(DataError, match="it is a") as caught:
                build_tokenizer(tokenizer_type, path, merges)
            assert fitting[path] in str(caught.value.hint)
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    for tokenizer_type in wrong:
        with pytest.raises(DataError, match="noise"):
            build_tokenizer(tokenizer_type, tmp_path / "noise", merges)


def test_refused_arguments(tmp_path: Path, gpt2_files: tuple[Path, Path]) -> None:
    """Unknown types and missing files are named."""
    vocabulary, merges = gpt2_files
    for arguments, message in (
        (("Word2Vec",), "tokenizer_type Word2Vec is unknown"),
        (("HFTokenizer",), "HFTokenizer needs a vocab_file"),
        (("GPT2BPETokenizer", vocabulary), "GPT2BPETokenizer needs a merge_file"),
        (("GPT2BPETokenizer", None, merges), "GPT2BPETokenizer needs a vocab_file"),
        (("SPMTokenizer",), "SPMTokenizer needs a vocab_file"),
        (("SPMTokenizer", tmp_path / "none"), "none: No such file"),
        (("TiktokenTokenizer",), "TiktokenTokenizer needs a vocab_file"),
        (("TiktokenTokenizer", "gpt5"), "vocab_file 'gpt5': not an encoding of tiktoken"),
        (("HFGPT2Tokenizer", tmp_path / "none"), "none: No such file"),
        (("HFGPT2Tokenizer", tmp_path), "vocab.json: No such file"),
        (("HFTokenizer", tmp_path / "無い.json"), "無い.json: No such file"),
        (("HFTokenizer", tmp_path), "it is a folder"),
        (("GPT2BPETokenizer", vocabulary, tmp_path / "none"), "merge_file .*none: No such file"),
        (("HFTokenizer", vocabulary), "no tokenizer"),
        (("GPT2BPETokenizer", merges, merges), r"merges.txt:1: not JSON"),
        (("GPT2BPETokenizer", TOKENIZER_JSON, merges), "not an object of token and id"),
        (("GPT2BPETokenizer", vocabulary, vocabulary), r"vocab.json:1: .* is not a pair of tokens"),
    ):
        with pytest.raises(DataError, match=message):
            build_tokenizer(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        (("HFTokenizer", "無い.json"), "https://huggingface.co/EleutherAI/gpt-neox-20b/resolve/main/tokenizer.json"),
        (("HFTokenizer",), "https://huggingface.co/EleutherAI/gpt-neox-20b/resolve/main/tokenizer.json"),
        (("GPT2BPETokenizer", "vocab.json", "merges.txt"), "`neoxlite data gpt2-vocab`"),
        (("GPT2BPETokenizer", "vocab.json"), "`neoxlite data gpt2-vocab`"),
        (("HFGPT2Tokenizer", "folder"), "GPT-2's own is built in"),
        (("SPMTokenizer", "a.model"), "Llama's is tokenizer.model"),
        (("SPMTokenizer",), "Llama's is tokenizer.model"),
        (("TiktokenTokenizer", "cl100k_base"), "https://openaipublic.blob.core.windows.net/encodings/cl100k_base"),
    ],
)
def test_missing_files_name_where_to_get_them(
    arguments: tuple[str, ...], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there, or not named in the configuration: the place and where it is to be had."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(DataError) as caught:
        build_tokenizer(*arguments)
    assert source in str(caught.value.hint)
    assert len(arguments) == 1 or "vocab_file" in caught.value.message or "merge_file" in caught.value.message


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


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:6a8f\nsize 456318\n"


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        (_POINTER, "a pointer of Git LFS, not the file itself", "git lfs pull"),
        (b"\n<!DOCTYPE html><html>404</html>", "a page of HTML, as a failed download leaves it", "download it again"),
        (gzip.compress(b"{}", mtime=0), "compressed by gzip", "unpack it first"),
        (b"PK\x03\x04" + b"0" * 40, "a zip archive", "unpack it first"),
    ],
    ids=["Git LFS", "HTML", "gzip", "zip"],
)
def test_what_lies_in_place_of_a_vocabulary(content: bytes, words: str, hint: str, tmp_path: Path) -> None:
    """What a clone without LFS and a failed download leave is called what it is, whatever kind is asked for."""
    file, vocabulary = tmp_path / "語彙", tmp_path / "vocab.json"
    file.write_bytes(content)
    vocabulary.write_bytes(b'{"<|endoftext|>": 0}')
    asked = [(kind, file, None) for kind in ("HFTokenizer", "SPMTokenizer")]
    for kind, first, second in [*asked, ("GPT2BPETokenizer", file, file), ("GPT2BPETokenizer", vocabulary, file)]:
        with pytest.raises(DataError) as caught:
            build_tokenizer(kind, first, second)
        assert words in caught.value.message
        assert "語彙" in caught.value.message
        assert hint in (caught.value.hint or "")


def test_byte_order_marks_in_vocabularies(gpt2_files: tuple[Path, Path], tmp_path: Path) -> None:
    """An editor of Windows puts one before the text, and ends lines in its own way."""
    for file in gpt2_files:
        (tmp_path / file.name).write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    marked = build_tokenizer("GPT2BPETokenizer", *(tmp_path / file.name for file in gpt2_files))
    assert marked.encode("a 日本語\n") == build_tokenizer("GPT2BPETokenizer", *gpt2_files).encode("a 日本語\n")

"""Tokenizers give upstream's ids; wrong files and types are refused in words."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import load_config
from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer, build_tokenizer
from neoxlite.tokenizers.gpt2_vocabulary import MERGES_FILE, gpt2_ranks, vocabulary_json

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


def test_gpt2_vocabulary_is_openais() -> None:
    """From the merges that come with the package follow OpenAI's encoder.json and r50k_base.tiktoken, byte for byte."""
    merges = hashlib.sha256(MERGES_FILE.read_bytes()).hexdigest()
    assert merges == "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
    encoder = hashlib.sha256(vocabulary_json().encode()).hexdigest()
    assert encoder == "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
    ranks = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in gpt2_ranks().items())
    recorded = _openai_encoding("r50k_base")
    assert hashlib.sha256(ranks).hexdigest() == recorded["sha256"]


def test_gpt2_built_in(told: dict[str, Any]) -> None:
    """GPT2BPETokenizer without files is upstream's with OpenAI's files: ids, texts, size and special tokens."""
    tokenizer = build_tokenizer("GPT2BPETokenizer")
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["GPT2BPETokenizer"])
    decoded = [tokenizer.decode(ids) for ids in told["tokenizers"]["GPT2BPETokenizer"]["ids"]]
    assert decoded == told["tokenizers"]["GPT2BPETokenizer"]["detokenized"]


def test_sentence_piece(told: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """SPMTokenizer: upstream's ids, texts, size; a model without <|endoftext|> ends documents as there, and says so."""
    tokenizer = build_tokenizer("SPMTokenizer", GOLDEN / "own_spm.model")
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["SPMTokenizer"])
    decoded = [tokenizer.decode(ids) for ids in told["tokenizers"]["SPMTokenizer"]["ids"]]
    assert decoded == told["tokenizers"]["SPMTokenizer"]["detokenized"]
    assert "documents end with the unknown piece" in caplog.text
    assert tokenizer.decode([*tokenizer.encode("ab"), 700]) == "ab"


@pytest.mark.parametrize("name", ["gpt2", "r50k_base"])
def test_tiktoken_built_in(name: str, told: dict[str, Any]) -> None:
    """TiktokenTokenizer has no recorded run of upstream; its GPT-2 gives the ids of GPT2BPETokenizer."""
    tokenizer = build_tokenizer("TiktokenTokenizer", name)
    _equal_to_upstream(tokenizer, told["texts"], told["tokenizers"]["GPT2BPETokenizer"])
    assert tokenizer.decode([*tokenizer.encode("日本語"), 50256, 60000, -1]) == "日本語<|endoftext|>"


def _openai_encoding(name: str) -> dict[str, Any]:
    """Ask the library what it would load for an encoding, without letting it."""
    import tiktoken_ext.openai_public as public

    told: dict[str, Any] = {}

    def record(url: str, expected_hash: str) -> dict[bytes, int]:
        told.update(url=url, sha256=expected_hash)
        return {bytes([byte]): byte for byte in range(256)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public, "load_tiktoken_bpe", record)
        told |= getattr(public, name)()
    return told


@pytest.mark.parametrize("name", ["p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"])
def test_tiktoken_cached(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding that is not in tiktoken's cache, or damaged there, is named with its address; nothing is loaded."""
    import tiktoken

    def refuse(*args: object) -> None:
        raise AssertionError("the library is asked for a file that is not there")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    told = _openai_encoding(name)
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


def test_hf_gpt2_equals_transformers(told: dict[str, Any], tmp_path: Path) -> None:
    """HFGPT2Tokenizer has no recorded run of upstream; it equals GPT2TokenizerFast with <|padding|> added."""
    from transformers import GPT2TokenizerFast

    (tmp_path / "vocab.json").write_text(vocabulary_json(), encoding="utf-8")
    (tmp_path / "merges.txt").write_bytes(MERGES_FILE.read_bytes())
    reference = GPT2TokenizerFast.from_pretrained(str(tmp_path))
    reference.add_special_tokens({"pad_token": "<|padding|>"})
    texts = [*told["texts"], "a<|padding|>b"]
    saved = tmp_path / "saved"
    reference.save_pretrained(str(saved))
    for tokenizer in (
        build_tokenizer("HFGPT2Tokenizer"),
        build_tokenizer("HFGPT2Tokenizer", "gpt2"),
        build_tokenizer("HFGPT2Tokenizer", tmp_path),
        build_tokenizer("HFGPT2Tokenizer", saved),
    ):
        assert tokenizer.encode_batch(texts) == [reference.encode(text) for text in texts]
        assert (tokenizer.vocab_size, tokenizer.eod, tokenizer.pad) == (50258, 50256, 50257)
        for text in texts:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_end_of_text_of_a_folder(tmp_path: Path, gpt2_files: tuple[Path, Path]) -> None:
    """HFGPT2Tokenizer ends documents with the eos_token of the folder, however it is written down."""
    for number, (name, token) in enumerate(
        (("tokenizer_config.json", "the"), ("special_tokens_map.json", {"content": "the"}))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in gpt2_files:
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / name).write_text(json.dumps({"eos_token": token}), encoding="utf-8")
        vocabulary = json.loads(gpt2_files[0].read_text(encoding="utf-8"))
        assert build_tokenizer("HFGPT2Tokenizer", folder).eod == vocabulary["the"]
    (folder / name).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"special_tokens_map\.json: not JSON"):
        build_tokenizer("HFGPT2Tokenizer", folder)


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


@pytest.mark.parametrize(
    "arguments",
    [
        ("CharLevelTokenizer",),
        ("HFTokenizer", TOKENIZER_JSON),
        ("SPMTokenizer", GOLDEN / "own_spm.model"),
        ("TiktokenTokenizer", "gpt2"),
    ],
)
def test_lone_surrogates(arguments: tuple[Any, ...]) -> None:
    """JSON may hold half a surrogate pair, which UTF-8 cannot: it becomes a question mark, not a crash."""
    tokenizer = build_tokenizer(*arguments)
    assert tokenizer.decode(tokenizer.encode("a\ud83db")) == "a?b"
    assert tokenizer.encode_batch(["a\ud83db"]) == [tokenizer.encode("a?b")]


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


def test_nothing_asks_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind is built and used, or refused, while every address and connection is an error."""

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"asks the network: {arguments}")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name, vocab_file in (
        ("GPT2BPETokenizer", None),
        ("HFTokenizer", TOKENIZER_JSON),
        ("HFGPT2Tokenizer", "gpt2"),
        ("HFGPT2Tokenizer", None),
        ("SPMTokenizer", GOLDEN / "own_spm.model"),
        ("CharLevelTokenizer", None),
        ("TiktokenTokenizer", "gpt2"),
    ):
        assert build_tokenizer(name, vocab_file).encode("ab")
    for name, vocab_file in (("HFGPT2Tokenizer", "gpt2-large"), ("TiktokenTokenizer", "o200k_base")):
        with pytest.raises(DataError):
            build_tokenizer(name, vocab_file)


@pytest.mark.parametrize("case", ["1x1", "1x2", "1x4", "1x8", "128x1", "128x2", "128x4", "128x8"])
def test_padding_as_upstream(case: str, told: dict[str, Any]) -> None:
    """The padded vocabulary for each multiple and tensor parallel size that upstream was asked for."""
    multiple, ranks = map(int, case.split("x"))
    overrides = {"make_vocab_size_divisible_by": multiple, "model_parallel_size": ranks}
    cfg = load_config("350M", overrides=overrides)
    for name, vocab_file in (
        ("GPT2BPETokenizer", None),
        ("HFTokenizer", TOKENIZER_JSON),
        ("SPMTokenizer", GOLDEN / "own_spm.model"),
        ("CharLevelTokenizer", None),
    ):
        size = build_tokenizer(name, vocab_file).vocab_size
        assert cfg.padded_vocab_size(size) == told["tokenizers"][name]["padded_vocab_size"][case]


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
        "heavy = {'torch', 'tokenizers', 'transformers', 'deepspeed', 'sentencepiece', 'tiktoken', 'gigatoken'}\n"
        "print(sorted(heavy.intersection(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


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

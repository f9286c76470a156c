"""Tokenizers give upstream's ids, or the library's where upstream has none."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import load_config
from neoxlite.errors import DataError
from neoxlite.tokenizers import Tokenizer, build_tokenizer
from neoxlite.tokenizers.base import needed_library
from neoxlite.tokenizers.gpt2_vocabulary import MERGES_FILE, gpt2_ranks, vocabulary_json
from tests.neoxlite.tokenizers.samples import GOLDEN, TOKENIZER_JSON, openai_encoding


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Return upstream's ids and texts."""
    read: dict[str, Any] = json.loads((GOLDEN / "tokenized.json").read_text(encoding="utf-8"))
    assert len(read["texts"]) == 18
    return read


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
    recorded = openai_encoding("r50k_base")
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
    ("code", "reason"),
    [
        ("raise ImportError('libx.so: cannot open shared object file')", "(libx.so: cannot open shared object file)"),
        ("import sys; sys.no_such", "(AttributeError: module 'sys' has no attribute 'no_such')"),
        ("raise OSError(8, 'Exec format error')", "(OSError: [Errno 8] Exec format error)"),
        ("def f(:", "(SyntaxError: invalid syntax (__init__.py, line 1))"),
        (None, " holds no half_gone)"),
    ],
)
def test_a_broken_library_is_a_missing_one(
    code: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its import raises, or nothing because only its folder is left: one error, with what to install."""
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("half_gone", None)
    (tmp_path / "half_gone").mkdir()
    if code is not None:
        (tmp_path / "half_gone/__init__.py").write_text(code)
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        needed_library("half_gone", "this", "data")
    assert caught.value.message.startswith("this needs the library half_gone, which cannot be imported (")
    assert caught.value.hint == "install it: pip install 'hpcjob[data]'"


@pytest.mark.parametrize(
    ("kind", "library"),
    [("HFTokenizer", "tokenizers"), ("SPMTokenizer", "sentencepiece"), ("TiktokenTokenizer", "tiktoken")],
)
def test_only_what_needs_a_library_is_refused_without_it(
    kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer says what it lacks; another one, without it, works."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=f"{kind} needs the library {library}, which cannot be imported"):
        build_tokenizer(kind, TOKENIZER_JSON)
    assert build_tokenizer("CharLevelTokenizer").encode("a") == [97]


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

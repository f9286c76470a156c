"""The fast library is used only where it gives the tokenizer's ids."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gigatoken
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from neoxlite.data.preprocess import Options, _tell_once, tokenize_files
from neoxlite.tokenizers import Tokenizer, build_tokenizer, encoder
from neoxlite.tokenizers.byte_pair import BytePairTokenizer
from neoxlite.tokenizers.encoder import CANARY, GigatokenEncoder, PlainEncoder, choose_encoder
from neoxlite.tokenizers.gpt2_vocabulary import gpt2_merges, gpt2_vocabulary

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenized"
GPT2 = build_tokenizer("GPT2BPETokenizer")
OWN = build_tokenizer("HFTokenizer", GOLDEN / "own_bpe_tokenizer.json")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


def _rows(chosen: encoder.Encoder, texts: list[str]) -> list[list[int]]:
    encoded = chosen.encode(texts)
    assert encoded.ids.size == encoded.sizes.sum()
    return [part.tolist() for part in np.split(encoded.ids, np.cumsum(encoded.sizes)[:-1])]


@pytest.mark.parametrize("name", ["GPT2BPETokenizer", "HFTokenizer"])
def test_fast_library_gives_recorded_ids(name: str) -> None:
    """gigatoken is chosen, and gives the ids of GPT-NeoX's own run."""
    told = json.loads((GOLDEN / "tokenized.json").read_text(encoding="utf-8"))
    chosen = choose_encoder(GPT2 if name == "GPT2BPETokenizer" else OWN)
    assert (chosen.encoder.name, chosen.reason) == ("gigatoken", None)
    assert _rows(chosen.encoder, told["texts"]) == told["tokenizers"][name]["ids"]


def _python_texts(count: int) -> list[str]:
    """Return Python files of this machine, some also backwards, and text of other kinds."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))[:count]
    texts = [path.read_text(encoding="utf-8", errors="replace")[:5000] for path in files]
    return [*texts, *CANARY, *(text[::-1] for text in texts[:5])]


def _same(tokenizer: Tokenizer, texts: list[str]) -> None:
    fast = GigatokenEncoder(tokenizer.backend, parallel=False)  # type: ignore[attr-defined]
    for first in range(0, len(texts), 50):
        part = texts[first : first + 50]
        assert _rows(fast, part) == tokenizer.encode_batch(part)


@pytest.mark.parametrize("tokenizer", [GPT2, OWN])
def test_real_files(tokenizer: Tokenizer) -> None:
    """Files of the standard library, also backwards: the ids of the library tokenizers."""
    _same(tokenizer, _python_texts(10))


@pytest.mark.full
@pytest.mark.parametrize("tokenizer", [GPT2, OWN])
def test_many_files(tokenizer: Tokenizer) -> None:
    """Thousands of documents of real text and of random characters of all kinds."""
    draw = random.Random(0)
    kinds = [range(0x20, 0x7F), range(0x3040, 0x30FF), range(0x4E00, 0x9FFF), range(0x1F300, 0x1FAFF), range(0x300)]
    noise = ["".join(chr(draw.choice(draw.choice(kinds))) for _ in range(draw.randint(1, 400))) for _ in range(3000)]
    _same(tokenizer, _python_texts(150) + noise)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_any_text(texts: list[str]) -> None:
    """Any characters, in one thread and in several: the same ids."""
    for fast in (_FAST, _PARALLEL):
        assert _rows(fast, texts) == GPT2.encode_batch(texts)


_FAST = GigatokenEncoder(GPT2.backend, parallel=False)  # type: ignore[attr-defined]
_PARALLEL = GigatokenEncoder(GPT2.backend, parallel=True)  # type: ignore[attr-defined]


def test_lone_surrogates() -> None:
    """What JSON may hold and UTF-8 may not becomes a question mark, as in the tokenizer."""
    assert _rows(_FAST, ["a\ud83db", "c"]) == GPT2.encode_batch(["a?b", "c"])


def test_no_texts() -> None:
    """Nothing in, nothing out; an empty text has no ids."""
    for one in (_FAST, PlainEncoder(GPT2)):
        assert one.encode([]).sizes.size == 0
        assert one.encode(["", "a", ""]).sizes.tolist() == [0, 1, 0]


def _backend(**change: Any) -> Backend:
    """Make GPT-2's tokenizer with parts of it changed."""
    backend = Backend(models.BPE(gpt2_vocabulary(), list(gpt2_merges()), dropout=change.get("dropout")))
    backend.pre_tokenizer = change.get("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False))
    if "normalizer" in change:
        backend.normalizer = change["normalizer"]
    if "added" in change:
        backend.add_tokens([change["added"]])
    if "truncation" in change:
        backend.enable_truncation(change["truncation"])
    return backend


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Backend(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), "cannot be used with this"),
        (lambda: _backend(normalizer=normalizers.NFKC()), "cannot be used with this tokenizer"),
        (lambda: _backend(pre_tokenizer=pre_tokenizers.Whitespace()), "cannot be used with this tokenizer"),
        (lambda: _backend(dropout=0.5), "its ids differ from the tokenizer's"),
        (lambda: _backend(truncation=5), "its ids differ from the tokenizer's"),
        (lambda: _backend(added=AddedToken("leading", single_word=True, lstrip=True)), "its ids differ"),
    ],
)
def test_tokenizers_that_the_library_cannot_do(make: Callable[[], Backend], reason: str) -> None:
    """Other models, normalisers and tokens: the tokenizer's own library, with the reason."""
    chosen = choose_encoder(BytePairTokenizer(make()))
    assert isinstance(chosen.encoder, PlainEncoder)
    assert reason in str(chosen.reason)


def test_other_tokenizers_have_their_own_library() -> None:
    """Where there is no fast library for a kind of tokenizer, there is nothing to say."""
    characters = build_tokenizer("CharLevelTokenizer")
    chosen = choose_encoder(characters)
    assert chosen.reason is None
    assert _rows(chosen.encoder, ["ab", "", "日"]) == [[97, 98], [], [0xE6, 0x97, 0xA5]]


def test_a_library_that_differs_on_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that differ on the first texts of the input only are noticed, said in one line, and not written."""
    real = gigatoken.Tokenizer.encode_batch

    def differs(self: Any, texts: list[str], **keywords: Any) -> Any:
        return real(self, [text.replace("special case", "special  case") for text in texts], **keywords)

    monkeypatch.setattr(gigatoken.Tokenizer, "encode_batch", differs)
    (tmp_path / "x.jsonl").write_text('{"text": "some text"}\n{"text": "a special case"}\n', encoding="utf-8")
    done = tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "x"), GPT2, Options())
    assert done.encoder == PlainEncoder.name
    monkeypatch.undo()
    tokenize_files([tmp_path / "x.jsonl"], str(tmp_path / "y"), GPT2, Options())
    assert (tmp_path / "x_text_document.bin").read_bytes() == (tmp_path / "y_text_document.bin").read_bytes()


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without gigatoken the datasets are the same, with one line about it, also for the second one."""
    source = GOLDEN / "input.jsonl"
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    _tell_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        tokenize_files([source], str(tmp_path / "gpt2_eod"), GPT2, Options(append_eod=True))
        tokenize_files([source], str(tmp_path / "again"), GPT2, Options())
    told = "gigatoken, which is many times faster, is not installed: pip install 'hpcjob[data]'"
    assert [record.message for record in caplog.records] == [told]
    name = "gpt2_eod_text_document.bin"
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("as_row", [np.asarray, list])
def test_rows_as_lists(as_row: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where awkward is not installed gigatoken gives a list of arrays: it is used all the same."""
    real = gigatoken.Tokenizer.encode_batch
    monkeypatch.setattr(gigatoken.Tokenizer, "encode_batch", lambda *a, **k: [as_row(row) for row in real(*a, **k)])
    chosen = choose_encoder(GPT2)
    assert (chosen.encoder.name, chosen.reason) == ("gigatoken", None)
    texts = ["日本語", "", "a text"]
    assert _rows(chosen.encoder, texts) == GPT2.encode_batch(texts)
    assert chosen.encoder.encode([]).sizes.size == 0


class _Panic(BaseException):
    """What Rust's panics are in Python: no Exception."""


def _other_release(**parts: Any) -> ModuleType:
    module = ModuleType("gigatoken")
    vars(module).update(parts)
    return module


def _tokenizer_of(encode_batch: Callable[..., Any]) -> ModuleType:
    made = SimpleNamespace(encode_batch=encode_batch)
    return _other_release(Tokenizer=SimpleNamespace(from_json=lambda text: made))


def _panics(*texts: Any, **keywords: Any) -> Any:
    raise _Panic("index out of bounds\nnote: more")


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        (_other_release(), "AttributeError: module 'gigatoken' has no attribute 'Tokenizer'"),
        (_tokenizer_of(lambda texts: []), "TypeError: "),
        (_tokenizer_of(lambda texts, parallel: 5), "AttributeError: 'int' object has no attribute 'layout'"),
        (_tokenizer_of(lambda texts, parallel: []), "IndexError: "),
        (_tokenizer_of(lambda texts, parallel: [[-1]] * len(texts)), ""),
        (_tokenizer_of(_panics), "_Panic: index out of bounds"),
    ],
)
def test_a_library_of_another_release(stand_in: ModuleType, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails at its first use, the tokenizer's own library is taken, and one line says why."""
    monkeypatch.setitem(sys.modules, "gigatoken", stand_in)
    chosen = choose_encoder(GPT2)
    assert isinstance(chosen.encoder, PlainEncoder)
    assert chosen.reason is not None
    assert reason in chosen.reason
    assert "\n" not in chosen.reason


def test_ctrl_c_is_no_failure_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants to end is not answered with a slower library."""

    def interrupted(texts: list[str], parallel: bool) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "gigatoken", _tokenizer_of(interrupted))
    with pytest.raises(KeyboardInterrupt):
        choose_encoder(GPT2)


def test_a_library_that_fails_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A panic in the middle of the input costs one line and speed, no document."""
    real, calls = gigatoken.Tokenizer.encode_batch, []

    def fails(self: Any, texts: list[str], **keywords: Any) -> Any:
        calls.append(len(texts))
        return real(self, texts, **keywords) if len(calls) < 2 else _panics()

    monkeypatch.setattr(gigatoken.Tokenizer, "encode_batch", fails)
    _tell_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        done = tokenize_files([GOLDEN / "input.jsonl"], str(tmp_path / "gpt2_eod"), GPT2, Options(append_eod=True))
    assert len(calls) == 2
    assert done.encoder == PlainEncoder.name
    told = "gigatoken failed (_Panic: index out of bounds), and is not used any more"
    assert [record.message for record in caplog.records] == [told]
    name = "gpt2_eod_text_document.bin"
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library has remembered too many words it is made anew, and goes on with the same ids."""
    resident = [0]
    monkeypatch.setattr(encoder, "resident_bytes", lambda: resident[0])
    fast = GigatokenEncoder(OWN.backend, parallel=False)  # type: ignore[attr-defined]
    made: list[Any] = []
    real = fast._make

    def make() -> Any:
        made.append(real())
        return made[-1]

    monkeypatch.setattr(fast, "_make", make)
    for size in (0, 1 << 28, (1 << 29) + 1, (1 << 29) + 2, 1 << 30, (1 << 30) + 3):
        resident[0] = size
        assert _rows(fast, ["one text"]) == OWN.encode_batch(["one text"])
    assert len(made) == 2


def test_resident_memory_is_that_of_this_process() -> None:
    """The number grows by what is used: 64 MiB of ones."""
    before = encoder.resident_bytes()
    held = np.ones(64 << 20, np.uint8)
    assert (60 << 20) < encoder.resident_bytes() - before < (80 << 20)
    assert held[-1] == 1

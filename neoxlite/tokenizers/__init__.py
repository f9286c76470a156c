"""Tokenizers by GPT-NeoX's names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, PADDING, Tokenizer, needed_library
from neoxlite.tokenizers.kinds import not_given

__all__ = ["END_OF_TEXT", "PADDING", "SUPPORTED", "Tokenizer", "build_tokenizer"]

_Given = str | Path | None


def _hf(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.byte_pair import load_tokenizer_json

    return load_tokenizer_json(_needed("HFTokenizer", vocab_file))


def _gpt2(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.byte_pair import load_gpt2

    if not vocab_file and not merge_file:
        return load_gpt2()
    if not vocab_file or not merge_file:
        key = "merge_file" if vocab_file else "vocab_file"
        raise not_given("GPT2BPETokenizer", key)
    return load_gpt2(Path(vocab_file), Path(merge_file))


def _hf_gpt2(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.byte_pair import load_hf_gpt2

    built_in = not vocab_file or (
        str(vocab_file) in ("gpt2", "openai-community/gpt2") and not Path(vocab_file).exists()
    )
    return load_hf_gpt2(None if built_in or vocab_file is None else Path(vocab_file))


def _spm(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.sentence_piece import SentencePieceTokenizer

    return SentencePieceTokenizer(_needed("SPMTokenizer", vocab_file))


def _tiktoken(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.tiktoken_encoding import TiktokenTokenizer

    if not vocab_file:
        raise DataError("TiktokenTokenizer needs a vocab_file", hint="set vocab_file to an encoding, such as gpt2")
    return TiktokenTokenizer(str(vocab_file))


def _char_level(vocab_file: _Given, merge_file: _Given) -> Tokenizer:
    from neoxlite.tokenizers.char_level import CharLevelTokenizer

    return CharLevelTokenizer()


# Name -> (how it is made, the library it needs, the extra that brings the library).
_BUILDERS: Final[dict[str, tuple[Callable[[_Given, _Given], Tokenizer], str, str]]] = {
    "HFTokenizer": (_hf, "tokenizers", "train"),
    "GPT2BPETokenizer": (_gpt2, "tokenizers", "train"),
    "HFGPT2Tokenizer": (_hf_gpt2, "tokenizers", "train"),
    "SPMTokenizer": (_spm, "sentencepiece", "data"),
    "TiktokenTokenizer": (_tiktoken, "tiktoken", "data"),
    "CharLevelTokenizer": (_char_level, "", ""),
}
SUPPORTED: Final = tuple(_BUILDERS)


def build_tokenizer(
    tokenizer_type: str, vocab_file: str | Path | None = None, merge_file: str | Path | None = None
) -> Tokenizer:
    """Make the tokenizer of a configuration. Nothing is downloaded.

    Args:
        tokenizer_type: GPT-NeoX's name, in any case.
        vocab_file: ``tokenizer.json`` of HFTokenizer, ``vocab.json`` of GPT2BPETokenizer, folder of HFGPT2Tokenizer,
            ``.model`` of SPMTokenizer, name of an encoding of TiktokenTokenizer. GPT2BPETokenizer and HFGPT2Tokenizer
            use GPT-2's own vocabulary without it.
        merge_file: ``merges.txt`` of GPT2BPETokenizer.

    Raises:
        DataError: an unknown type, a file that is missing, damaged, of another kind or not given, or a library that
            cannot be imported.
    """
    for name, (build, library, extra) in _BUILDERS.items():
        if name.lower() == tokenizer_type.lower():
            if library:
                needed_library(library, name, extra)
            return build(vocab_file, merge_file)
    raise DataError(f"tokenizer_type {tokenizer_type} is unknown", hint=f"known: {', '.join(SUPPORTED)}")


def _needed(name: str, vocab_file: _Given) -> Path:
    if not vocab_file:
        raise not_given(name, "vocab_file")
    return Path(vocab_file)

"""Tokenizers by GPT-NeoX's names."""

from __future__ import annotations

from pathlib import Path

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, PADDING, Tokenizer

__all__ = ["END_OF_TEXT", "PADDING", "SUPPORTED", "Tokenizer", "build_tokenizer"]

SUPPORTED = ("HFTokenizer", "GPT2BPETokenizer", "CharLevelTokenizer")
_KNOWN_UPSTREAM = ("HFGPT2Tokenizer", "SPMTokenizer", "TiktokenTokenizer")


def build_tokenizer(
    tokenizer_type: str, vocab_file: str | Path | None = None, merge_file: str | Path | None = None
) -> Tokenizer:
    """Make the tokenizer of a configuration.

    Args:
        tokenizer_type: GPT-NeoX's name, in any case.
        vocab_file: ``tokenizer.json`` of HFTokenizer, ``vocab.json`` of GPT2BPETokenizer.
        merge_file: ``merges.txt`` of GPT2BPETokenizer.

    Raises:
        DataError: an unknown or unsupported type, a file that is missing, damaged or not given, or no ``tokenizers``
            library.
    """
    name = tokenizer_type.lower()
    if name == "charleveltokenizer":
        from neoxlite.tokenizers.char_level import CharLevelTokenizer

        return CharLevelTokenizer()
    if name not in ("hftokenizer", "gpt2bpetokenizer"):
        raise _unsupported(tokenizer_type)
    if not vocab_file:
        raise DataError(f"{tokenizer_type} needs a vocab_file", hint="Set vocab_file to the tokenizer's file.")
    from neoxlite.tokenizers import byte_pair

    try:
        if name == "hftokenizer":
            return byte_pair.load_tokenizer_json(Path(vocab_file))
        if not merge_file:
            raise DataError(f"{tokenizer_type} needs a merge_file", hint="Set merge_file to the merges.txt.")
        return byte_pair.load_gpt2(Path(vocab_file), Path(merge_file))
    except ImportError as error:
        raise DataError(
            f"{tokenizer_type} needs the library tokenizers, which cannot be imported ({error})",
            hint="Install it: pip install 'hpcjob[train]'",
        ) from error


def _unsupported(tokenizer_type: str) -> DataError:
    supported = ", ".join(SUPPORTED)
    if tokenizer_type.lower() in (known.lower() for known in _KNOWN_UPSTREAM):
        return DataError(
            f"tokenizer_type {tokenizer_type} is not supported yet",
            hint=f"Supported: {supported}. A fast Hugging Face tokenizer saves a tokenizer.json for HFTokenizer.",
        )
    return DataError(f"tokenizer_type {tokenizer_type} is unknown", hint=f"Supported: {supported}.")

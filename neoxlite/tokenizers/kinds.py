"""What kind of vocabulary a file is, so that a wrong one is answered with the tokenizer_type that fits it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from neoxlite.errors import DataError

_RANK_LINE: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_HEAD_BYTES: Final = 4096

# Kind of file -> what it is and how it is used.
_KINDS: Final = {
    "tokenizer.json": ("a tokenizer.json of Hugging Face", "set tokenizer_type: HFTokenizer"),
    "vocab.json": ("a vocab.json of GPT-2's kind", "set tokenizer_type: GPT2BPETokenizer, with merge_file"),
    "merges.txt": ("a list of merges", "set it as merge_file, with tokenizer_type: GPT2BPETokenizer"),
    "spm": ("a SentencePiece model", "set tokenizer_type: SPMTokenizer"),
    "tiktoken": (
        "a list of tiktoken ranks",
        "set tokenizer_type: TiktokenTokenizer, with the encoding's name as vocab_file",
    ),
    "folder": ("a folder", "set tokenizer_type: HFGPT2Tokenizer, or name a file in it"),
    "lfs": ("a pointer of Git LFS, not the file itself", "run `git lfs pull` where it was cloned"),
    "html": ("a page of HTML, as a failed download leaves it", "download it again"),
    "gzip": ("compressed by gzip", "unpack it first"),
    "zip": ("a zip archive", "unpack it first"),
}
# What lies under the name of another file: the beginning, in lower case.
_STAND_INS: Final = {
    b"version https://git-lfs.github.com/": "lfs",
    b"<!doctype html": "html",
    b"<html": "html",
    b"\x1f\x8b": "gzip",
    b"pk\x03\x04": "zip",
}

_PYTHIA: Final = "https://huggingface.co/EleutherAI/gpt-neox-20b/resolve/main/tokenizer.json"
# Where the files of a tokenizer are to be had.
_SOURCES: Final = {
    "HFTokenizer": f"GPT-NeoX-20B's and Pythia's tokenizer.json: {_PYTHIA}; one of your own text: "
    "`neoxlite data train-tokenizer`",
    "GPT2BPETokenizer": "GPT-2's own is built in: omit vocab_file and merge_file, or write them with "
    "`neoxlite data gpt2-vocab`",
    "HFGPT2Tokenizer": "GPT-2's own is built in: omit vocab_file; others are folders of Hugging Face models, with "
    "tokenizer.json, or vocab.json and merges.txt",
    "SPMTokenizer": "a .model comes with the model that it belongs to (Llama's is tokenizer.model); one of your own "
    "text: spm_train of SentencePiece",
}


def not_given(tokenizer_type: str, key: str) -> DataError:
    """Return the error of a file that the configuration does not name, with where to get it."""
    return DataError(f"{tokenizer_type} needs a {key}", hint=f"set {key}; {_SOURCES[tokenizer_type]}")


def missing(tokenizer_type: str, key: str, path: Path, problem: str = "No such file or directory") -> DataError:
    """Return the error of a file that is not there or cannot be read, with where to get it."""
    return DataError(f"{key} {path}: {problem}", hint=f"set {key} to its place; {_SOURCES[tokenizer_type]}")


def _stand_in_kind(head: bytes) -> str | None:
    begin = head.lstrip().lower()
    return next((kind for start, kind in _STAND_INS.items() if begin.startswith(start)), None)


def stand_in(head: bytes) -> tuple[str, str] | None:
    """Return what a file is that begins with ``head`` and lies in place of another, and what to do about it."""
    kind = _stand_in_kind(head)
    return _KINDS[kind] if kind is not None else None


def detect_kind(path: Path) -> str | None:
    """Return the kind of a vocabulary ("tokenizer.json", "spm", ...) from its content; None for no known one.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        return "folder"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if (kind := _stand_in_kind(head)) is not None:
        return kind
    if head.lstrip().startswith(b"{"):
        return _json_kind(path)
    # A protobuf message of pieces: field 1 and its length, in it field 1 (the text, shorter) again.
    if len(head) > 4 and head[0] == head[2] == 0x0A and head[3] + 2 <= head[1]:
        return "spm"
    if _RANK_LINE.match(head):
        return "tiktoken"
    if head.startswith(b"#version") or _is_pairs(head):
        return "merges.txt"
    return None


def _json_kind(path: Path) -> str | None:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("model"), dict):
        return "tokenizer.json"
    return "vocab.json" if content and all(type(number) is int for number in content.values()) else None


def _is_pairs(head: bytes) -> bool:
    lines = head.split(b"\n")[:-1]
    return bool(lines) and all(len(line.split()) == 2 for line in lines)


def wrong_kind(
    tokenizer_type: str, key: str, path: Path, expected: str, problem: str | None = None, *, line: int | None = None
) -> DataError:
    """Return the error of a file that is not what a tokenizer needs.

    Args:
        tokenizer_type: the tokenizer that was asked for.
        key: configuration key of the file.
        path: the file.
        expected: what belongs there.
        problem: what was wrong while reading it.
        line: where.
    """
    where = f"{key} {path}" if line is None else f"{key} {path}:{line}"
    hint = f"{tokenizer_type} needs {expected}"
    try:
        kind = detect_kind(path)
    except OSError as error:
        return missing(tokenizer_type, key, path, error.strerror or str(error))
    if kind is not None and kind not in expected:
        what, use = _KINDS[kind]
        reason = f"{problem}; it is {what}" if problem else f"it is {what}"
        return DataError(f"{where}: {reason}", hint=f"{hint}; for this file {use}")
    return DataError(f"{where}: {problem or f'not {expected}'}", hint=hint)


def read_text(path: Path, key: str, tokenizer_type: str) -> str:
    """Return the text of a vocabulary file. Raises DataError if it is missing, no UTF-8, or a pointer to the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise wrong_kind(tokenizer_type, key, path, "a text file", problem) from None
    except IsADirectoryError:
        raise wrong_kind(tokenizer_type, key, path, "a text file") from None
    except OSError as error:
        raise missing(tokenizer_type, key, path, error.strerror or str(error)) from error
    told = stand_in(text[:_HEAD_BYTES].encode())
    if told is not None:
        raise DataError(f"{key} {path}: it is {told[0]}", hint=f"for this file {told[1]}")
    return text

"""OpenAI's encodings on the ``tiktoken`` library, without its downloads."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neoxlite.errors import DataError
from neoxlite.tokenizers.base import END_OF_TEXT, encodable
from neoxlite.tokenizers.gpt2_vocabulary import gpt2_ranks

if TYPE_CHECKING:
    from tiktoken import Encoding

# The pattern of GPT-2 (src/encoder.py), which r50k_base shares: words, numbers and signs with one space before each.
_GPT2_PATTERN: Final = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_BUILT_IN: Final = ("gpt2", "r50k_base")


@dataclass(frozen=True)
class _Download:
    """A file of ranks that tiktoken keeps in its cache (tiktoken_ext/openai_public.py of the library)."""

    url: str
    sha256: str


_BLOBS: Final = "https://openaipublic.blob.core.windows.net/encodings"
_DOWNLOADS: Final = {
    "p50k_base": _Download(
        f"{_BLOBS}/p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
    ),
    "p50k_edit": _Download(
        f"{_BLOBS}/p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
    ),
    "cl100k_base": _Download(
        f"{_BLOBS}/cl100k_base.tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    ),
    "o200k_base": _Download(
        f"{_BLOBS}/o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    ),
    "o200k_harmony": _Download(
        f"{_BLOBS}/o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    ),
}


class TiktokenTokenizer:
    """GPT-NeoX's TiktokenTokenizer (megatron/tokenizer/tokenizer.py at ea7aefd8).

    A special token inside a text becomes its one id, as in upstream's batches; upstream's single texts are an error
    there.

    Args:
        name: of the encoding. "gpt2" and "r50k_base" come with this package, others must be in tiktoken's cache.

    Raises:
        DataError: the encoding is unknown or not on this machine.
    """

    pad: int | None = None

    def __init__(self, name: str) -> None:
        self._encoding = _encoding(name)
        self.vocab_size: int = self._encoding.n_vocab
        # o200k_harmony has several; the others one. Upstream asks in the same way.
        self.eod: int | None = self._encoding.eot_token

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        return self._encoding.encode(encodable(text), allowed_special="all")

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, on the threads that RAYON_NUM_THREADS allows."""
        threads = int(os.environ.get("RAYON_NUM_THREADS") or os.cpu_count() or 1)
        cleaned = [encodable(text) for text in texts]
        return self._encoding.encode_batch(cleaned, num_threads=threads, allowed_special="all")

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; ids that name no token, which padding may add, give nothing."""
        return b"".join(map(self._token_bytes, ids)).decode("utf-8", errors="replace")

    def _token_bytes(self, number: int) -> bytes:
        try:
            return self._encoding.decode_single_token_bytes(number)
        except (KeyError, OverflowError):
            return b""


def _encoding(name: str) -> Encoding:
    import tiktoken

    if name in _BUILT_IN:
        ranks = gpt2_ranks()
        return tiktoken.Encoding(
            name,
            pat_str=_GPT2_PATTERN,
            mergeable_ranks=ranks,
            special_tokens={END_OF_TEXT: len(ranks)},
            explicit_n_vocab=len(ranks) + 1,
        )
    if name not in _DOWNLOADS:
        known = ", ".join((*_BUILT_IN, *_DOWNLOADS))
        raise DataError(
            f"vocab_file {name!r}: not an encoding of tiktoken",
            hint=f"TiktokenTokenizer takes the name of an encoding: {known}",
        )
    _check_cached(name, _DOWNLOADS[name])
    return tiktoken.get_encoding(name)


def _check_cached(name: str, download: _Download) -> None:
    """Raise DataError unless tiktoken's cache holds the file, so that the library has nothing to download."""
    # The names that the library gives its files (tiktoken/load.py).
    given = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(given) if given else Path(tempfile.gettempdir()) / "data-gym-cache"
    path = folder / hashlib.sha1(download.url.encode(), usedforsecurity=False).hexdigest()
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"vocab_file {name}: the encoding is not on this machine ({path}: {error.strerror})",
            hint=f"where there is internet, save {download.url} as that file and set TIKTOKEN_CACHE_DIR={folder}",
        ) from None
    if found != download.sha256:
        raise DataError(f"vocab_file {name}: {path} is damaged", hint=f"download {download.url} again to that file")

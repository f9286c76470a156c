"""Many texts to one array of ids: on the fast library where it gives the same ids, else on the tokenizer's own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from neoxlite.tokenizers.base import END_OF_TEXT, PADDING, Tokenizer, encodable, reason_of

# Every kind of text that tokenizers are known to differ on. A library is used only if it gives the same ids for all.
CANARY: Final = (
    "Hello world! It's the year 2024, isn't it? They'll've gone; we'd SHOUT'S.",
    "def f(x):\n\treturn {'a': [1, 22, 333, 4444], \"b\": x**2}  # trailing spaces   \n\n\n    \r\n",
    "日本語の文章です。漢字、ひらがな、カタカナ、ﾊﾝｶｸ、半角カナと①㍿。",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 flags 🇯🇵, combining e\u0301 a\u030a, Ａｌｌ fullwidth １２３",
    "\x00\x01\x07\x1b[31m\x7f\x85\xa0\u200b\u2028\u3000\ufeff\ufffd",
    f"a{END_OF_TEXT}b {END_OF_TEXT} {PADDING}<|endoftext",
    "العربية עברית हिन्दी ภาษาไทย 한국어 Ελληνικά русский ไม่มีช่องว่าง",
    "   leading,  double   and\u00a0other\u2003spaces\t\ttabs\n \n  \n",
    "supercalifragilisticexpialidocious" * 20,
    "0123456789" * 30 + "½²٣৪",
    "http://example.org/a_b-c?d=e&f=%20#g @user #tag $1,000.00 50% C++ <b>x</b> \\n \\\\",
    "a" * 1000 + " " * 100 + "\n" * 100,
    "",
    " ",
)

_ADDED_TOKENS: Final = 64  # of a tokenizer, to be tried
_MEMORY_BYTES: Final = 1 << 29  # that the words remembered may take


@dataclass(frozen=True)
class Encoded:
    """Ids of some texts.

    Attributes:
        ids: of all texts, laid end to end, shape [sum of sizes].
        sizes: ids of each text, int64 [texts].
    """

    ids: npt.NDArray[np.integer[Any]]
    sizes: npt.NDArray[np.int64]


class Encoder(Protocol):
    """Encodes batches of texts as a tokenizer's ``encode`` would."""

    @property
    def name(self) -> str:
        """The library that does the work."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of the texts."""


class PlainEncoder:
    """Encodes with the tokenizer itself."""

    name = "the tokenizer's own library"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of the texts."""
        batch = self._tokenizer.encode_batch(texts)
        sizes = np.fromiter(map(len, batch), np.int64, len(batch))
        return Encoded(np.fromiter(itertools.chain.from_iterable(batch), np.int64, int(sizes.sum())), sizes)


def resident_bytes() -> int:
    """Return the memory that this process has in use (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class GigatokenEncoder:
    """Encodes with gigatoken, which remembers the words that it has met.

    What its methods raise is the library's own, a panic of its Rust code (a BaseException) among it.

    Args:
        backend: a ``tokenizers.Tokenizer``.
        parallel: use all threads (RAYON_NUM_THREADS); otherwise the caller's alone.
    """

    name = "gigatoken"

    def __init__(self, backend: Any, *, parallel: bool) -> None:
        import gigatoken

        self._parallel = parallel
        description = backend.to_str()
        self._tokenizer: Any
        self._make: Callable[[], Any] = lambda: gigatoken.Tokenizer.from_json(description)
        self._renew()

    def _renew(self) -> None:
        """Forget the words, of which the library keeps every one."""
        self._tokenizer = None
        self._tokenizer = self._make()
        self._resident_bytes = resident_bytes()

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of the texts."""
        if resident_bytes() - self._resident_bytes > _MEMORY_BYTES:
            self._renew()
        given = list(texts)
        try:
            rows = self._tokenizer.encode_batch(given, parallel=self._parallel)
        except TypeError:  # a lone surrogate
            rows = self._tokenizer.encode_batch([encodable(text) for text in given], parallel=self._parallel)
        if isinstance(rows, list):  # of arrays: awkward is not installed
            ids = np.concatenate([np.empty(0, np.uint32), *(np.asarray(row, np.uint32) for row in rows)])
            return Encoded(ids, np.fromiter(map(len, rows), np.int64, len(rows)))
        offsets = np.asarray(rows.layout.offsets.data)
        return Encoded(np.asarray(rows.layout.content.data)[offsets[0] : offsets[-1]], np.diff(offsets))


@dataclass(frozen=True)
class Choice:
    """An encoder, and why the fast one was not taken (None: it was, or there is none for this tokenizer)."""

    encoder: Encoder
    reason: str | None = None


def choose_encoder(tokenizer: Tokenizer, samples: Sequence[str] = ()) -> Choice:
    """Return the fastest encoder that works and whose ids are those of the tokenizer.

    Args:
        tokenizer: says what is right.
        samples: texts to compare on, besides `CANARY`.
    """
    plain = PlainEncoder(tokenizer)
    backend = getattr(tokenizer, "backend", None)
    if backend is None:
        return Choice(plain)
    try:
        fast = GigatokenEncoder(backend, parallel=os.environ.get("RAYON_NUM_THREADS") != "1")
        differs = first_difference(fast, plain, [*CANARY, *_around_added(backend), *samples])
    except (KeyboardInterrupt, SystemExit):
        raise
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "gigatoken"
        problem = "is not installed" if absent else f"cannot be imported ({reason_of(error)})"
        return Choice(plain, f"gigatoken, which is many times faster, {problem}: pip install 'hpcjob[data]'")
    except (RuntimeError, ValueError) as error:
        return Choice(plain, f"gigatoken cannot be used with this tokenizer ({reason_of(error)})")
    except BaseException as error:  # of another release, half installed, or a panic
        return Choice(plain, f"gigatoken cannot be used ({reason_of(error)})")
    if differs is not None:
        return Choice(plain, f"gigatoken is not used: its ids differ from the tokenizer's for {differs[:60]!r}")
    return Choice(fast)


def _around_added(backend: Any) -> list[str]:
    """Return texts with the added tokens of a tokenizer, on whose rules (whole words, spaces) libraries differ."""
    tokens = [added.content for added in list(backend.get_added_tokens_decoder().values())[:_ADDED_TOKENS]]
    return [f"a{token}b {token} {token}{token}. {token.upper()} x  {token}  \n{token}" for token in tokens]


def first_difference(one: Encoder, other: Encoder, texts: Sequence[str]) -> str | None:
    """Return the first text whose ids differ between two encoders, or None."""
    first, second = one.encode(texts), other.encode(texts)
    at = np.concatenate(([0], np.cumsum(first.sizes)))
    for number, text in enumerate(texts):
        if first.sizes[number] != second.sizes[number]:
            return text
        part = slice(at[number], at[number + 1])
        if not np.array_equal(first.ids[part], second.ids[part]):
            return text
    return None

"""Documents from JSON lines, a block of lines at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from neoxlite.data.bad_input import BadInput
from neoxlite.errors import DataError

_BLOCK_BYTES: Final = 1 << 20
_LINE_END: Final = ord("\n")
_LINE_BYTES: Final = 1 << 30  # a longer line is a file of another kind
_PARAGRAPHS: Final = "\n\n"
_EXAMPLE: Final = 'Each line must be an object such as {"text": "..."}'

Columns = tuple[list[str], ...]


class Readable(Protocol):
    """What lines are read from."""

    def read(self, size: int, /) -> bytes: ...


class LineParser:
    """Takes the texts out of blocks of lines.

    As the reader of upstream's preprocess_data (lm_dataformat 0.0.20), a line may also be a bare string, and a list of
    strings is joined by blank lines.

    Args:
        name: of the file, for messages.
        keys: fields of the objects.
        bad: what to do with a bad line.
        lines_before: counts the lines of the file before those that are parsed; asked for messages only.
    """

    def __init__(
        self, name: str, keys: Sequence[str], bad: BadInput, *, lines_before: Callable[[], int] | None = None
    ) -> None:
        self._name, self._keys, self._bad = name, tuple(keys), bad
        self._line = 1
        self._lines_before = lines_before
        # msgspec is five times as fast as json, but has no words for a user: what it refuses is read again slowly.
        names = [f"field{number}" for number in range(len(self._keys))]
        self._names = names
        record = msgspec.defstruct(
            "Line", [(name, str) for name in names], rename=dict(zip(names, self._keys, strict=True)), gc=False
        )
        self._decoder = msgspec.json.Decoder(record)

    def parse(self, block: bytes) -> Columns:
        """Return the texts of each key in whole lines. Raises DataError, naming the line, as the policy says."""
        # Three times as fast as bytes.count where line ends are rare.
        lines = np.count_nonzero(np.frombuffer(block, np.uint8) == _LINE_END) + (not block.endswith(b"\n"))
        try:
            block.decode()  # fields that are not asked for may hold anything, for msgspec
            records = self._decoder.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
            records = None
        if records is None or len(records) != lines:
            return self._parse_slowly(block)
        self._line += lines
        return tuple([getattr(record, name) for record in records] for name in self._names)

    def _parse_slowly(self, block: bytes) -> Columns:
        columns: Columns = tuple([] for _ in self._keys)
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            if line.strip():
                row = self._row(line)
                for column, text in zip(columns, row, strict=False):
                    column.append(text)
            self._line += 1
        return columns

    def _row(self, line: bytes) -> list[str]:
        """Return the texts of a line, none if it is bad and left out."""
        try:
            record = self._object(line)
            return [self._text(record, key) for key in self._keys]
        except DataError as error:
            self._bad.document(error)
            return []

    @property
    def _where(self) -> str:
        before = self._lines_before() if self._lines_before is not None else 0
        return f"input {self._name}:{before + self._line}"

    def _object(self, line: bytes) -> Any:
        try:
            record = json.loads(line.decode("utf-8-sig" if self._line == 1 and self._lines_before is None else "utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._where}: not UTF-8 ({error.reason} at byte {error.start})",
                hint="convert the file: iconv -t UTF-8",
            ) from None
        except json.JSONDecodeError as error:
            raise DataError(f"{self._where}: not JSON ({error.msg} at column {error.colno})", hint=_EXAMPLE) from None
        except RecursionError:
            raise DataError(f"{self._where}: not JSON that can be read (nested too deeply)", hint=_EXAMPLE) from None
        except ValueError as error:  # a number of thousands of digits
            raise DataError(f"{self._where}: not JSON that can be read ({error})", hint=_EXAMPLE) from None
        if not isinstance(record, (dict, str)):
            raise DataError(f"{self._where}: {type(record).__name__} where an object belongs", hint=_EXAMPLE)
        return record

    def _text(self, record: Any, key: str) -> str:
        if isinstance(record, str):
            return record
        text = record.get(key)
        if isinstance(text, list) and all(isinstance(part, str) for part in text):
            return _PARAGRAPHS.join(text)
        if not isinstance(text, str):
            found = "there is no key" if key not in record else f"{type(text).__name__} under the key"
            keys = ", ".join(map(repr, list(record)[:10]))
            raise DataError(
                f"{self._where}: {found} {key!r}; a text belongs there (keys: {keys})",
                hint="name the key of the text with --jsonl-keys",
            )
        return text


def read_lines(stream: Readable, parser: LineParser, name: str) -> Iterator[Columns]:
    """Yield the texts of a stream of lines, a block at a time, in constant memory.

    Raises:
        DataError: a bad line, as the parser's policy says, or one longer than 1 GiB.
        OSError, EOFError, ...: what the stream raises when it is damaged.
    """
    pieces: list[bytes] = []
    held = 0
    while block := stream.read(_BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            columns = parser.parse(b"".join([*pieces, block[:end]]))
            pieces, held = [], 0
            yield columns
        pieces.append(block[end:])
        held += len(block) - end
        if held > _LINE_BYTES:
            raise DataError(f"input {name}: a line of more than {_LINE_BYTES >> 20} MiB", hint=_EXAMPLE)
    if held:
        yield parser.parse(b"".join(pieces))

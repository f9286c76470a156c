"""From lines to errors: Python tracebacks by process, torchrun's table of failed processes, lines that rules know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hpcjob.logs.events import Event, Finding, ProcessEnd, Traceback, origin
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.prefixes import told
from hpcjob.logs.rulebook import Rulebook, load_errors
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.wrapped import Wrapped

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "was the direct cause of the following exception")
_TABLE = ("Root Cause (first observed failure):", "Failures:")
_NEEDLES = tuple(text.encode() for text in (_TRACEBACK, *_CHAINED, *_TABLE))

_FRAME = lazy(r'\s+File "(?P<file>[^"]{1,4096})", line (?P<line>\d{1,9}), in (?P<function>\S{1,256})')
_EXCEPTION = lazy(r"(?P<name>(?:[A-Za-z_]\w{0,127}\.){0,16}[A-Z]\w{0,127})(?::(?: (?P<message>.*))?)?$")
_EXCEPTION_WORDS = lazy(r"Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|Fault|\.")
_ANY_EXCEPTION = "exception-line"  # the rule for an exception without its traceback
_TRACE_LINES_AT_MOST = 60
_FOREIGN_LINES_AT_MOST = 100
_HEADER_LIMIT = 300
_HEADERS_AT_MOST = 64
_CLOCK = lazy(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
# Of those who start the program: what they raise says only that it failed.
_LAUNCHERS = lazy(
    r"(?:torch/distributed/(?:run|launch|launcher/api|elastic/.*)|accelerate/commands/\w+|deepspeed/launcher/\w+)\.py:"
    r"|/bin/(?:torchrun|accelerate|deepspeed|axolotl|llamafactory-cli):"
)
_TABLE_ROW = lazy(r"\s{0,8}(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,12}: (?P<value>.*?)\s*$")
_TABLE_END = lazy(r"={10,}")


def needles() -> tuple[bytes, ...]:
    """Return the texts that begin an error of several lines."""
    return _NEEDLES


class _Stream(NamedTuple):
    """Lines of one process, as far as the prefixes tell processes apart."""

    source: str
    host: str | None
    rank: int | None
    local_rank: int | None
    pid: int | None
    header: str = ""


class _Trace:
    """A traceback that has not come to its exception yet."""

    def __init__(self, line: Line, *, followed: bool) -> None:
        self.origin = origin(line)
        self.followed = followed
        self.trace = [_TRACEBACK]
        self.at: str | None = None
        self.foreign_lines = 0
        self.begun = 1  # tracebacks begun and not ended: several processes may share a stream

    def add(self, text: str) -> None:
        frame = _FRAME.match(text)
        if frame is not None:
            self.at = f"{frame['file']}:{frame['line']} in {frame['function']}"
        if len(self.trace) >= _TRACE_LINES_AT_MOST:
            # The innermost calls tell most: the middle goes.
            del self.trace[_TRACE_LINES_AT_MOST // 2]
        self.trace.append(text[:1000])


class ErrorReader:
    """Read lines, give errors as they are complete.

    Lines of several processes may be interleaved where prefixes or files tell them apart; in a log without prefixes
    tracebacks of several processes are still counted, though their frames may be mixed.
    """

    def __init__(self, book: Rulebook | None = None) -> None:
        self._book = book or load_errors()
        self._traces: dict[_Stream, _Trace] = {}
        self._chained: set[_Stream] = set()
        self._tables: dict[_Stream, dict[str, str]] = {}
        self._hinted: dict[_Stream, Finding] = {}
        self._wrapped = Wrapped()
        self._headers: dict[str, dict[str, re.Pattern[str]]] = {}  # of each file, what stands before tracebacks

    def shapes(self) -> Shapes:
        """Return the shapes of lines that can be an error, for reading whole logs fast."""
        return Shapes(self.interests())

    def interests(self) -> list[tuple[Interest, Sequence[bytes]]]:
        """Return which texts such lines have."""
        return [(Interest.ALL, self._book.literals), (Interest.ALL, _NEEDLES)]

    @property
    def unfinished(self) -> bool:
        """Whether a traceback, a table, an error whose hint follows or a line that was cut has begun and not ended."""
        return bool(self._traces or self._tables or self._hinted or self._wrapped)

    def unfinished_in(self, source: str) -> bool:
        """Whether such a thing has begun in this file and not ended."""
        begun = (self._traces, self._tables, self._hinted)
        return source in self._wrapped or any(stream.source == source for streams in begun for stream in streams)

    def read(self, line: Line) -> list[Event]:
        """Return the errors that ``line`` completes."""
        return [event for whole in self._wrapped.take(line) for event in self._read_whole(whole)]

    def _read_whole(self, line: Line) -> list[Event]:
        stream, line = self._without_header(line)
        waiting = self._hinted.pop(stream, None)
        if waiting is None:
            return self._read(stream, line)
        hint = line.text.strip()
        if hint and line.text.startswith("  ") and not (_TABLE_ROW.match(line.text) or _FRAME.match(line.text)):
            return [msgspec.structs.replace(waiting, fix=hint)]
        return [waiting, *self._read(stream, line)]

    def _without_header(self, line: Line) -> tuple[_Stream, Line]:
        """Take off what a logger writes before each line of a traceback, once a traceback has shown what that is."""
        text = line.text
        stream = _Stream(line.source, line.host, line.rank, line.local_rank, line.pid)
        place = text.find(_TRACEBACK, 1, _HEADER_LIMIT)
        headers = self._headers.get(line.source)
        if place > 0 and text[place - 1] == " ":
            headers = self._headers.setdefault(line.source, {})
            if len(headers) >= _HEADERS_AT_MOST:
                headers.clear()
            parts = _CLOCK.split(text[:place])
            headers["#".join(parts)] = re.compile(_CLOCK.pattern.join(map(re.escape, parts)))
        for form, pattern in (headers or {}).items():
            match = pattern.match(text)
            if match is None:
                continue
            own = stream._replace(header=form)
            if own in self._traces or text.startswith((_TRACEBACK, *_CHAINED), match.end()):
                rest = {"text": text[match.end() :], "prefix": line.prefix + match[0]}
                return own, msgspec.structs.replace(line, **rest)
        if self._traces and stream not in self._traces and _FRAME.match(text):
            self._headless(stream)
        return stream, line

    def _headless(self, stream: _Stream) -> None:
        """What stood before a traceback stands before its first line only: those that follow have none of it.

        That is words of a program, or a whole prefix, where a logger writes it once a message.
        """
        for other, trace in list(self._traces.items()):
            told = {name: None for name, its in zip(_Stream._fields, stream, strict=True) if its is None}
            bare = other._replace(header="", **told)  # type: ignore[arg-type]  # those are the fields that may be None
            if bare == stream and len(trace.trace) == 1:
                self._traces[stream] = self._traces.pop(other)
                return

    def _read(self, stream: _Stream, line: Line) -> list[Event]:
        if _TRACEBACK in line.text:
            self._begin(stream, line)
            return []
        if stream in self._traces:
            ended = self._continue(stream, line)
            if ended is not None:
                return [ended]
            if line.text[:1].isspace():
                return []
        if any(words in line.text for words in _CHAINED):
            self._chained.add(stream)
        if any(words in line.text for words in _TABLE):
            self._tables[stream] = {"root": "yes"} if "Root Cause" in line.text else {}
            return []
        if stream in self._tables:
            row = _TABLE_ROW.match(line.text)
            if row is not None:
                return self._table_row(stream, row["key"], row["value"], line)
            if _TABLE_END.match(line.text):
                del self._tables[stream]
        finding = self._book.find(line)
        if finding is not None and finding.rule in self._book.hinted:
            self._hinted[stream] = finding
            return []
        return [] if finding is None else [finding]

    def finish(self) -> list[Event]:
        """Return what the log's end left unfinished: tracebacks without exception, errors without hint."""
        cut = [event for line in self._wrapped.finish() for event in self._read_whole(line)]
        cut += self._hinted.values()
        cut += [
            self._traceback(trace, "unknown", "the log ends within the traceback") for trace in self._traces.values()
        ]
        self._hinted.clear()
        self._traces.clear()
        self._tables.clear()
        return cut

    def _begin(self, stream: _Stream, line: Line) -> None:
        trace = self._traces.get(stream)
        if trace is not None:
            trace.begun += 1
            return
        self._traces[stream] = _Trace(line, followed=stream in self._chained)
        self._chained.discard(stream)

    def _continue(self, stream: _Stream, line: Line) -> Event | None:
        trace = self._traces[stream]
        text = line.text
        if not text or text[0].isspace():
            trace.add(text)
            trace.foreign_lines = 0
            return None
        exception = _EXCEPTION.match(text)
        if exception is not None and (trace.foreign_lines == 0 or _EXCEPTION_WORDS.search(exception["name"])):
            trace.trace.append(text[:1000])
            ended = self._traceback(trace, exception["name"], exception["message"] or "", line)
            trace.begun -= 1
            if trace.begun == 0:
                del self._traces[stream]
            else:
                trace.trace.pop()
            return ended
        trace.foreign_lines += 1
        if trace.foreign_lines > _FOREIGN_LINES_AT_MOST:
            del self._traces[stream]
            return self._traceback(trace, "unknown", "the traceback's end is not in the log")
        return None

    def _traceback(self, trace: _Trace, name: str, message: str, line: Line | None = None) -> Traceback:
        known = None if line is None else self._book.find(line)
        if known is not None and known.rule == _ANY_EXCEPTION:
            known = None  # the traceback itself tells more
        role = "symptom" if line is None else "cause"  # one that is cut does not tell what happened
        if trace.at is not None and _LAUNCHERS.search(trace.at):
            role = "follower"
        return Traceback(
            **trace.origin,
            exception=name,
            exception_line=None if line is None else line.number or None,
            message=message[:1000],
            at=trace.at,
            trace=list(trace.trace),
            followed=trace.followed,
            role=role if known is None else known.role,
            topic="program" if known is None else known.topic,
            rule=None if known is None else known.rule,
            say=None if known is None else known.say,
            fix=None if known is None else known.fix,
        )

    def _table_row(self, stream: _Stream, key: str, value: str, line: Line) -> list[Event]:
        rows = self._tables[stream]
        rows[key] = value
        if key != "traceback":  # the last row of an entry
            return []
        root = "root" in rows
        self._tables[stream] = {"root": "yes"} if root else {}
        code = re.match(r"-?\d{1,9}", rows.get("exitcode", ""))
        rank = re.match(r"(\d{1,9})(?: \(local_rank: (\d{1,9})\))?", rows.get("rank", ""))
        if code is None or rank is None:
            return []
        end = ProcessEnd(
            **origin(line),
            exit_code=int(code[0]),
            root_cause=root,
            note=value[:1000] or None,
        )
        return [
            msgspec.structs.replace(
                end,
                host=told(rows.get("host")) or told(line.host),
                rank=int(rank[1]),
                local_rank=None if rank[2] is None else int(rank[2]),
                time=rows.get("time", line.time),
            )
        ]

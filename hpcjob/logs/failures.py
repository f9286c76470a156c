"""The errors of a job in the order of blame: causes before followers, alike ones of many ranks in one row."""

from __future__ import annotations

import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from hpcjob.logs.errors import ErrorReader
from hpcjob.logs.events import ErrorGroup, Event, Finding, ProcessEnd, Traceback
from hpcjob.logs.fold import Fold, Group, without_numbers
from hpcjob.logs.lines import Line
from hpcjob.logs.report import Row
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.sources import short_name

if TYPE_CHECKING:
    from hpcjob.logs.ending import Ending
    from hpcjob.logs.rulebook import Rulebook
    from hpcjob.logs.suspicion import Suspicion

_ENDED = "ended"
_ORDER = {"cause": 0, "symptom": 1, "warning": 2, "follower": 3, "info": 4}
_ROLES = list(_ORDER)
# Ended by the agent or the watchdog after another process had failed.
_FOLLOWING_CODES = {-signal.SIGTERM, -signal.SIGABRT, -signal.SIGINT}


class FailureReport:
    """Read lines, give rows, first cause first.

    Order: role, exit codes after what tells why, then whether torchrun named the rank as first to fail, then the log's
    order; within one file that is time, between files it is the order in which they are read.

    Args:
        ending: how the job has ended by its own files, asked again as the log grows. Of one that ended as it was asked
            to, exit codes and generic errors are no errors.
        book: the rules; the shipped ones if None.
    """

    def __init__(self, ending: Callable[[], Ending | None] = lambda: None, *, book: Rulebook | None = None) -> None:
        self._ending = ending
        self._reader = ErrorReader(book)
        self._fold: Fold[Event] = Fold()
        self._first_to_fail: int | None = None

    def shapes(self) -> Shapes:
        """Return the shapes of lines that can be an error, for reading whole logs fast."""
        return self._reader.shapes()

    def interests(self) -> list[tuple[Interest, Sequence[bytes]]]:
        """Return which texts lines of interest have."""
        return self._reader.interests()

    def pending(self) -> bool:
        """Whether the next line belongs to an error that began."""
        return self._reader.unfinished

    def pending_in(self, source: str) -> bool:
        """Whether the next line of this file belongs to an error that began."""
        return self._reader.unfinished_in(source)

    def read(self, line: Line) -> list[Event]:
        """Take a line in and return the errors that it completes."""
        return self._take(self._reader.read(line), line)

    def finish(self) -> list[Event]:
        """The log has ended: return what was left unfinished."""
        return self._take(self._reader.finish(), None)

    def summary(self) -> list[Event]:
        """Return what was gathered over the whole log."""
        return list(self.groups())

    def groups(self) -> Iterator[ErrorGroup]:
        """Give errors that are alike as one event, in the order of blame."""
        stop = self._stop()
        rows = [(self._place(group, stop), group) for group in self._fold.groups.values()]
        for place, group in sorted(rows, key=lambda item: item[0]):
            yield _group(group, _ROLES[place[0]])

    def _take(self, events: list[Event], line: Line | None) -> list[Event]:
        for event in events:
            if isinstance(event, ProcessEnd) and event.root_cause and self._first_to_fail is None:
                self._first_to_fail = event.rank
            self._fold.add(key_of(event), event, line)
        if events and self._stop() is not None:
            return [_demoted(event) for event in events]
        return events

    def _stop(self) -> Suspicion | None:
        ending = self._ending()
        return None if ending is None else ending.clean_stop()

    def rows(self) -> Iterator[Row]:
        """Give all errors found so far."""
        stop = self._stop()
        if stop is not None:
            yield Row(_ENDED, "info", _ENDED, stop.cause, fix=stop.fix)
        rows = [(self._place(group, stop), key, group) for key, group in self._fold.groups.items()]
        for place, key, group in sorted(rows, key=lambda item: item[0]):
            yield _row(key, group, _ROLES[place[0]])

    def _place(self, group: Group[Event], stop: Suspicion | None) -> tuple[int, bool, bool]:
        event = group.first
        role = role_of(event)
        if stop is not None and role == "symptom":
            role = "follower"
        return _ORDER[role], role == "symptom" and isinstance(event, ProcessEnd), self._first_to_fail not in group.ranks


def _demoted(event: Event) -> Event:
    if isinstance(event, Finding | Traceback) and event.role == "symptom":
        return msgspec.structs.replace(event, role="follower")
    return event


def role_of(event: Event) -> str:
    """Return the role of an error, see `hpcjob.logs.rulebook.ROLES`."""
    if isinstance(event, Finding | Traceback):
        return event.role
    if isinstance(event, ProcessEnd):
        if event.exit_code >= 0:
            return "symptom"  # what the process itself said tells why
        return "follower" if event.exit_code in _FOLLOWING_CODES and not event.root_cause else "cause"
    return "info"


def key_of(event: Event) -> Hashable:
    """Return what errors that are alike have in common."""
    if isinstance(event, Traceback):
        return "traceback", event.exception, without_numbers(event.message), event.at
    if isinstance(event, ProcessEnd):
        return "end", event.exit_code, event.root_cause
    if isinstance(event, Finding):
        return event.rule, without_numbers(event.say) if event.role == "warning" else event.say
    return type(event).__name__


def _group(group: Group[Event], role: str) -> ErrorGroup:
    event = group.first
    known = event if isinstance(event, Finding | Traceback) else None
    if isinstance(event, Traceback):
        kind, text = "traceback", event.said
    elif isinstance(event, ProcessEnd):
        kind, text = "process_end", f"ended with {describe_code(event.exit_code)}"
    else:
        kind, text = "finding", known.say or "" if known is not None else ""
    return ErrorGroup(
        source=event.source,
        offset=event.offset,
        line=event.line,
        time=event.time,
        kind=kind,
        role=role,
        text=text,
        topic=None if known is None else known.topic,
        rule=None if known is None else known.rule,
        fix=None if known is None else known.fix,
        count=group.count,
        processes=len(group.processes) or len(group.ranks),
        ranks=sorted(group.ranks),
        hosts=sorted(group.hosts),
    )


def _row(key: Hashable, group: Group[Event], role: str) -> Row:
    event = group.first
    times = f" (x{group.times})" if group.times > 1 else ""
    who = f"{group.who}{times}: " if group.who else ""
    where = f"{short_name(event.source)}, byte {event.offset}"
    if event.time:
        where += f", {event.time}"
    details: Iterable[str]
    if isinstance(event, Traceback):
        text, topic = event.say or event.said, "exception"
        details = [*([event.said] if event.say else []), *([f"at {event.at}"] if event.at else [])]
    elif isinstance(event, ProcessEnd):
        first = ", the first to fail" if event.root_cause else ""
        text, topic = f"ended with {describe_code(event.exit_code)}{first} (torchrun)", "process"
        details = [event.note] if event.note and "To enable traceback" not in event.note else []
    elif isinstance(event, Finding):
        text, topic = event.say, event.topic
        details = [event.text] if event.text.strip() not in event.say else []
    else:
        raise TypeError(type(event))
    if not who:
        text += times
    fix = event.fix if isinstance(event, Finding | Traceback) else None
    return Row(key, role, topic, who + text, (*details, where), fix, group.times)


def describe_code(code: int) -> str:
    """Return an exit code in words; a negative one is a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"

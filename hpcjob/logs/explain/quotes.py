"""Lines of the log as evidence."""

from __future__ import annotations

from hpcjob.logs.events import Event, Finding, ProcessEnd, Traceback
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.explain.last_words import last_words
from hpcjob.logs.explain.verdict import Quote

_TEXT_AT_MOST = 500


def text_of(event: Event) -> str:
    """Return the line of an error that says what it is."""
    if isinstance(event, Traceback):
        return event.said
    if isinstance(event, Finding):
        return event.text
    return event.note or "" if isinstance(event, ProcessEnd) else ""


def quotes_of(blamed: Blamed, evidence: Evidence) -> list[Quote]:
    """Return the lines that show an error: itself, and of an exception where it was raised."""
    event = blamed.group.first
    texts = {text_of(event): event.line}
    if isinstance(event, Traceback):
        texts = {text_of(event): event.exception_line or event.line}
        if event.at:
            texts[f"at {event.at}"] = event.line
    own = last_words(event) if isinstance(event, ProcessEnd) else None
    if own is not None:
        texts = {own.text: own.number or None}
    host = event.host or (None if event.rank is None else evidence.identity.host_of.get(event.rank))
    return [
        Quote(
            source=event.source if own is None else own.source,
            line=number,
            text=text.strip()[:_TEXT_AT_MOST],
            rank=event.rank,
            host=host,
            time=event.time,
        )
        for text, number in texts.items()
        if text.strip()
    ]

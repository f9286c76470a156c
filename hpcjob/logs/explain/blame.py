"""Which of several errors made the others.

By the order of blame of their topic (`hpcjob.logs.topics`), then the rank that torchrun saw fail first, then time by
the log's own clock, then the reading order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from hpcjob.logs.events import Event, Finding, ProcessEnd, Traceback
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.topics import TOPICS

_STRONG_SIGNALS: Final = {-9: "memory", -7: "shm", -11: "program", -4: "program", -8: "program"}
_BLAME_OF_ROOT_CAUSE: Final = 35  # a signal that torchrun saw first: before exceptions, after a machine that failed


def causes(evidence: Evidence) -> list[Blamed]:
    """Return the errors that have a cause of their own, the one to blame first."""
    return ordered((blamed for blamed in evidence.blamed("cause", "symptom") if _is_cause(blamed)), evidence)


def ordered(errors: Iterable[Blamed], evidence: Evidence) -> list[Blamed]:
    """Return errors in the order of blame."""
    return sorted(errors, key=lambda item: _order(item, evidence))


def topic_of(event: Event) -> str:
    """Return what an error is about, a key of `hpcjob.logs.topics.TOPICS` for all but followers."""
    if isinstance(event, ProcessEnd):
        return _STRONG_SIGNALS.get(event.exit_code, "program")
    return event.topic if isinstance(event, Finding | Traceback) else "program"


def blame_of(event: Event) -> int:
    """Return the place of an error in the order of blame, the smaller the earlier."""
    if isinstance(event, ProcessEnd):
        return _BLAME_OF_ROOT_CAUSE
    # An exception that followed another one was raised while that one was handled.
    return TOPICS[topic_of(event)].blame + (1 if isinstance(event, Traceback) and event.followed else 0)


def _is_cause(blamed: Blamed) -> bool:
    event = blamed.group.first
    if isinstance(event, ProcessEnd):
        return event.root_cause and event.exit_code in _STRONG_SIGNALS
    return isinstance(event, Finding | Traceback) and event.role == "cause"


def _order(blamed: Blamed, evidence: Evidence) -> tuple[int, bool, float, int]:
    event = blamed.group.first
    first = evidence.first_to_fail is not None and evidence.first_to_fail in blamed.group.ranks
    time_s = math.inf if blamed.time_s is None else blamed.time_s
    return blame_of(event), not first, time_s, blamed.order

"""Events of training where a line does not tell all: blocks of several lines, and what is only shown again.

OLMo and Composer write a heading with the step and a line for each number below it::

    [step=10/1000,epoch=0]
        train/CrossEntropyLoss=3.25

NeMo and Lightning repeat the last loss on held-out data in each line of the training; it counts once.

Both are told by the places of the lines in their file, so lines may be read again, as when a file's end is looked for.
"""

from __future__ import annotations

from typing import NamedTuple

from hpcjob.logs import parse
from hpcjob.logs.events import Event, Iteration, Validation, origin
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line

_HEADING = lazy(r"\[(?:step|batch)=(?P<step>\d{1,12})(?:/(?P<total>\d{1,12}))?(?:,[^\]]{0,200})?\]:?\s*$")
_N = r"[\d.eE+-]{1,40}|nan|inf"
_LOSS = lazy(
    rf"^\s+(?:Train )?(?:train|loss)/(?:train/)?(?:CrossEntropyLoss|CE loss|loss|total)[=:] ?(?P<loss>{_N})$"
    rf"|^\s+(?:Eval )?(?:metrics/)?eval/\S{{0,80}}(?:CrossEntropy|[Ll]oss)[=:] ?(?P<held_out>{_N})$"
)
_BLOCK_BYTES = 32 * 1024
_FILES_KEPT = 10_000


class _Heading(NamedTuple):
    offset: int
    step: int
    total: int | None


class TrainingReader:
    """Reads lines of any files, in the order in which they stand in each."""

    def __init__(self) -> None:
        self._headings: dict[tuple[str, int | None], _Heading] = {}
        self._held_out: dict[tuple[str, int | None], tuple[float, int]] = {}

    def read(self, line: Line) -> list[Event]:
        """Return the events that a line tells, with what stood before it."""
        events = parse.parse(line)
        if len(events) == 2:
            return [event for event in events if not self._is_shown_again(event, line)]
        return events or self._of_block(line)

    def _of_block(self, line: Line) -> list[Event]:
        where = line.source, line.rank
        if "[step=" in line.text or "[batch=" in line.text:
            match = _HEADING.search(line.text)
            if match is not None:
                if len(self._headings) >= _FILES_KEPT:
                    self._headings.clear()
                total = None if match["total"] is None else int(match["total"])
                self._headings[where] = _Heading(line.offset, int(match["step"]), total)
            return []
        heading = self._headings.get(where)
        if heading is None or not 0 < line.offset - heading.offset < _BLOCK_BYTES:
            return []
        match = _LOSS.match(line.text)
        if match is None:
            return []
        try:
            loss = float(match["loss"] or match["held_out"])
        except ValueError:
            return []
        if match["loss"] is None:
            at = f"iteration {heading.step}"
            return [Validation(**origin(line), at=at, iteration=heading.step, loss=loss)]
        step, total = heading.step, heading.total
        return [Iteration(**origin(line), shape="steps", iteration=step, train_iters=total, loss=loss)]

    def _is_shown_again(self, event: Event, line: Line) -> bool:
        if not isinstance(event, Validation):
            return False
        where = line.source, line.rank
        known = self._held_out.get(where)
        if known is not None and known[0] == event.loss and known[1] < line.offset:
            return True
        if len(self._held_out) >= _FILES_KEPT:
            self._held_out.clear()
        self._held_out[where] = event.loss, line.offset
        return False

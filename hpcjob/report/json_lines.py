"""Lines of JSON as events: the trainer's ``metrics.jsonl``, ``hpcjob tail --json``, ``hpcjob export --json``, others.

One object a line with ``iteration`` or ``step`` and some of the fields of `hpcjob.logs.events.Iteration`; ``event``
names another kind. ``null`` is a number that is not finite.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hpcjob.logs import parse
from hpcjob.logs.events import Checkpoint, Event, Iteration, Validation, origin
from hpcjob.logs.lines import Line

_NUMBERS = (
    *("loss", "lr", "grad_norm", "loss_scale", "samples_per_s", "tokens_per_s", "tflops", "mfu_percent"),
    *("iteration_time_ms", "memory_gib", "epoch", "learning_rate", "validation_loss", "test_loss"),
)
_COUNTS = ("iteration", "step", "train_iters", "skipped")
_Number = float | None | msgspec.UnsetType
_Object: Any = msgspec.defstruct(
    "_Object",
    [
        *((name, _Number, msgspec.UNSET) for name in _NUMBERS),
        *((name, int | None, None) for name in _COUNTS),
        *((name, str | None, None) for name in ("event", "action", "path", "at", "time")),
    ],
)
_DECODER = msgspec.json.Decoder(_Object)
_COUNT_AT_MOST = 10**18
_OF_TEST = "test data"


def events_of_json(line: Line) -> list[Event]:
    """Return the events of a line that is one JSON object; of any other what `hpcjob.logs.parse` finds."""
    try:
        found = _DECODER.decode(line.text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return parse.parse(line)
    number = found.iteration if found.iteration is not None else found.step
    if number is not None and not 0 <= number <= _COUNT_AT_MOST:
        return []
    at = origin(line) | ({} if found.time is None else {"time": found.time})
    if found.event in (None, "iteration"):
        return _iteration(found, number, at)
    if found.event == "checkpoint":
        action = found.action if found.action in ("saved", "loaded") else "saved"
        return [Checkpoint(**at, action=action, path=found.path, iteration=number)]
    if found.event in ("validation", "test") and found.loss is not msgspec.UNSET:
        words = found.at or ("" if found.event == "validation" else _OF_TEST)
        return [Validation(**at, at=words, iteration=number, loss=_float(found.loss))]
    return []


def _iteration(found: Any, number: int | None, at: dict[str, Any]) -> list[Event]:
    told: dict[str, Any] = {
        name: _float(value) for name in _NUMBERS if (value := getattr(found, name)) is not msgspec.UNSET
    }
    rate = told.pop("learning_rate", None)
    held_out = {"": told.pop("validation_loss", None), _OF_TEST: told.pop("test_loss", None)}
    if rate is not None:
        told.setdefault("lr", rate)
    if found.loss_scale is None:
        del told["loss_scale"]  # here null means that there is none
    if found.loss is None and found.skipped:
        del told["loss"]  # and here that each iteration of the interval was skipped
    events: list[Event] = []
    if number is not None and told:
        events.append(Iteration(**at, shape="steps", iteration=number, train_iters=found.train_iters, **told))
    events += [
        Validation(**at, at=words, iteration=number, loss=loss) for words, loss in held_out.items() if loss is not None
    ]
    return events


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)

"""Rows of trainers in which no word ``loss`` stands before the number.

Shapes (sources: Ultralytics ``engine/trainer.py``; caikit-nlp and fms-hf-tuning, their ``training_logs.jsonl``)::

          Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
         70/1000      6.73G      1.081     0.4706      1.084         10        640: 100%|████| 16/16 [00:05<00:00,  2.78it/s]
    {"name": "loss", "data": {"epoch": 0.01, "step": 1, "value": 3.9274, "timestamp": "2023-09-26T19:25:18.737364"}}
"""  # noqa: E501 - a line as it is

from __future__ import annotations

from hpcjob.logs.events import Event, Iteration, Validation, origin
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.trainer_fields import NUMBER, fields, read_number

NEEDLES = (b": 100%",)
"""Texts of such lines that those about losses do not have."""

_NAMED = lazy(
    rf'"name": "(?P<name>\w{{0,40}}loss)", "data": \{{[^}}]{{0,200}}"step": (?P<step>\d{{1,12}}), "value": '
    rf"(?P<value>{NUMBER})"
)
_COLUMNS = lazy(
    r"^ {0,12}(?P<epoch>\d{1,9})/(?P<epochs>\d{1,9}) +(?P<memory>\d[\d.]{0,8})G"
    r"(?P<losses>(?: +(?:\d[\d.]{0,12}|nan|inf)){1,8}) +\d{1,9} +\d{2,5}: +100%"
    r".{0,400}?[| ━](?P<step>\d{1,9})/(?P<steps>\d{1,9})\b"
)


def parse(text: str, line: Line) -> list[Event]:
    """Return the events of such a row."""
    if '"value": ' in text:
        return _named(text, line)
    if "G " in text and ": 100%" in text:
        return _columns(text, line)
    return []


def _named(text: str, line: Line) -> list[Event]:
    match = _NAMED.search(text)
    if match is None:
        return []
    step, loss = int(match["step"]), read_number(match["value"])
    if "val" in match["name"]:
        return [Validation(**origin(line), at=f"iteration {step}", iteration=step, loss=loss)]
    return [Iteration(**origin(line), shape="steps", iteration=step, loss=loss, **fields(text))]


def _columns(text: str, line: Line) -> list[Event]:
    """Read the row that Ultralytics leaves of an epoch: the loss is the sum of its parts, of which it shows each."""
    match = _COLUMNS.search(text)
    if match is None:
        return []
    done, steps = int(match["epoch"]), int(match["steps"])
    loss = sum(float(part) for part in match["losses"].split())
    told = fields(text) | {"epoch": float(done), "memory_gib": float(match["memory"])}
    return [
        Iteration(
            **origin(line),
            shape="steps",
            iteration=(done - 1) * steps + int(match["step"]),
            train_iters=int(match["epochs"]) * steps,
            loss=round(loss, 6),
            **told,
        )
    ]

"""From a line to events of training: iterations, validation, checkpoints.

Shapes (sources: GPT-NeoX ``megatron/logging.py``, ``megatron/training.py``, ``megatron/checkpointing.py``; DeepSpeed
``runtime/pipe/engine.py``):

* the training line of GPT-NeoX and neoxlite, `` samples/sec: 27.345 | iteration 100/ 320000 | ... |``. It is read as a
  table of ``key: value`` between bars, so fields that come and go, and the line of the Megatron family, need no
  pattern of their own;
* ``steps: 10 loss: 0.1234 iter time (s): 0.123 samples/sec: 12.345`` of DeepSpeed's pipeline engine;
* `` validation results at iteration 1000 | lm_loss value: ... | lm_loss_ppl value: ... |``;
* checkpoints saved and loaded;
* everything else that trainers print: `hpcjob.logs.trainers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hpcjob.logs import trainer_rows, trainers
from hpcjob.logs.events import Checkpoint, Event, Iteration, Validation, origin
from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line

TABLE_NEEDLES = (
    b"iteration",
    b"steps: ",
    b"validation ",
    b"heckpoint",
    b"successfully loaded",
    b"saving model",
    b"loss",
    b"Loss",
    b"LOSS",
    b"[step=",
    b"[batch=",
    *trainer_rows.NEEDLES,
)
"""Texts of the lines that are rows of the iteration table."""
NEEDLES = (
    b"time (ms)", b".....: (", b"memory (MB)", b"Max_MA ", b"MemAllocated=", b"OVERFLOW!", b"lr=[", b"micro_batches=",
    b"STAGE_PARAMS=",
)  # fmt: skip
"""Texts of the lines that are events of training and no part of the iteration table."""


def parse(line: Line) -> list[Event]:
    """Return the events of training that ``line`` tells, usually none or one."""
    text = line.text
    for reader in (_training_line, _steps_line, _validation, _checkpoint):
        event = reader(text, line)
        if event is not None:
            return [event]
    return trainers.parse(text, line)


_NUMBER = lazy(r"\s{0,16}([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))\s{0,4}([KMGTPEZ]?)FLOPS|"
                     r"\s{0,16}([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))", re.IGNORECASE)  # fmt: skip
_UNIT_TFLOPS = {"": 1e-12, "K": 1e-9, "M": 1e-6, "G": 1e-3, "T": 1.0, "P": 1e3, "E": 1e6, "Z": 1e9}


def _number(text: str) -> float | None:
    """Read the number that a text begins with; FLOPS with their unit become TFLOPS."""
    if "F" not in text:  # of FLOPS
        try:
            return float(text)
        except ValueError:
            pass  # more stands behind it
    match = _NUMBER.match(text)
    if match is None:
        return None
    if match[1] is not None:
        tflops = float(match[1]) * _UNIT_TFLOPS[match[2].upper()]
        return float(f"{tflops:.12g}")  # 16.4 * 0.001 is 0.016399999999999998
    return float(match[3])


def _count(text: str) -> int | None:
    value = _number(text)
    return int(value) if value is not None and value.is_integer() else None


def _milliseconds(text: str) -> float | None:
    seconds = _number(text)
    return None if seconds is None else round(1e3 * seconds, 6)


_Reader = Callable[[str], float | int | None]
# Key of the log line -> field of `Iteration` and how to read it. Megatron's names differ from GPT-NeoX's in a few.
_FIELDS: dict[str, tuple[str, _Reader]] = {
    "samples/sec": ("samples_per_s", _number),
    "samples per second": ("samples_per_s", _number),
    "elapsed time per iteration (ms)": ("iteration_time_ms", _number),
    "elapsed time per iteration (s)": ("iteration_time_ms", _milliseconds),
    "learning rate": ("lr", _number),
    "approx flops per GPU": ("tflops", _number),
    "throughput per GPU (TFLOP/s/GPU)": ("tflops", _number),
    "TFLOPs": ("tflops", _number),
    "MFU": ("mfu_percent", _number),
    "HFU": ("hfu_percent", _number),
    "lm_loss": ("loss", _number),
    "lm loss": ("loss", _number),
    "loss": ("loss", _number),
    "loss scale": ("loss_scale", _number),
    "grad norm": ("grad_norm", _number),
    "global batch size": ("global_batch", _count),
    "number of skipped iterations": ("skipped", _count),
    "number of nan iterations": ("nan", _count),
    "consumed samples": ("consumed_samples", _count),
    "consumed tokens": ("consumed_tokens", _count),
}
_OTHERS_AT_MOST, _KEY_LIMIT = 64, 100
# A line that was cut, or one of another program with the same word, lacks these.
_TRAINING_FIELDS = {"iteration_time_ms", "loss", "lr"}
_PROGRESS = lazy(r"\biteration +(\d{1,18})/ *(\d{1,18}) *\|")


def _training_line(text: str, line: Line) -> Event | None:
    progress = _PROGRESS.search(text)
    if progress is None:
        return None
    fields: dict[str, Any] = {}
    other: dict[str, float] = {}
    # What stands before the counter is only the rate; another process's output may be glued to its front.
    before = text.rfind("samples/sec:", 0, progress.start())
    if before >= 0:
        fields["samples_per_s"] = _number(text[before + len("samples/sec:") :])
    for part in text[progress.end() :].split("|"):
        key, _, value = part.rpartition(":")
        known = _FIELDS.get(key := key.strip())
        if known is not None:
            fields.setdefault(known[0], known[1](value))
        elif key and len(other) < _OTHERS_AT_MOST and (number := _number(value)) is not None:
            other[key[:_KEY_LIMIT]] = number
    if not _TRAINING_FIELDS.intersection(fields):
        return None
    return Iteration(
        **origin(line),
        shape="neox",
        iteration=int(progress[1]),
        train_iters=int(progress[2]),
        other=other,
        **fields,
    )


_STEPS = lazy(r"\bsteps: (\d{1,18}) loss: (\S+) iter time \(s\): (\S+) samples/sec: (\S+)")


def _steps_line(text: str, line: Line) -> Event | None:
    match = _STEPS.search(text)
    if match is None:
        return None
    seconds = _number(match[3])
    return Iteration(
        **origin(line),
        shape="deepspeed",
        iteration=int(match[1]),
        loss=_number(match[2]),
        iteration_time_ms=None if seconds is None else round(seconds * 1000, 6),
        samples_per_s=_number(match[4]),
    )


_VALIDATION = lazy(r"\bvalidation (?:results|loss) at ([^|]{1,200}?) \| lm[_ ]loss value: (\S+)")
_PERPLEXITY = lazy(r"\blm[_ ]loss[_ ](?:ppl|PPL)(?: value)?: (\S+)")
_AT_ITERATION = lazy(r"iteration (\d{1,18})\b")


def _validation(text: str, line: Line) -> Event | None:
    match = _VALIDATION.search(text)
    loss = None if match is None else _number(match[2])
    if match is None or loss is None:
        return None
    iteration = _AT_ITERATION.match(match[1])
    perplexity = _PERPLEXITY.search(text)
    return Validation(
        **origin(line),
        at=match[1],
        iteration=None if iteration is None else int(iteration[1]),
        loss=loss,
        perplexity=None if perplexity is None else _number(perplexity[1]),
    )


_CHECKPOINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "saved",
        lazy(r"\bsaved checkpoint (?:at|of|from) iteration +(?P<at>\d{1,18})(?: to (?P<path>\S.*?))?(?: \[ ?t .*)?$"),
    ),
    ("saved", lazy(r"\[Torch\] Checkpoint (?:global_step(?P<at>\d{1,18})|(?P<path>\S+)) is ready now!")),
    ("saved", lazy(r"\b[Ss]aved (?:the )?(?:model )?checkpoint(?: to| in| at|:) (?P<path>\S*[/\d]\S*)")),
    ("saved", lazy(r"\b[Cc]heckpoint saved(?: to| in| at|:) (?P<path>\S*[/\d]\S*)")),
    ("saved", lazy(r"\bModel weights saved in (?P<path>\S+)")),
    ("saved", lazy(r"\bFinished saving the checkpoint\b")),
    ("loaded", lazy(r"Loading checkpoint and starting from iteration (?P<at>\d{1,18})")),
    (
        "loaded",
        lazy(
            r"successfully loaded(?: checkpoint from)? (?P<path>\S.*?)"
            r"(?: (?:\[[^\]]*\] )?at iteration +(?P<at>\d{1,18}))?$"
        ),
    ),
    ("loaded", lazy(r"\bFinished loading the checkpoint\b(?:.*? step (?P<at>\d{1,18}))?")),
    (
        "loaded",
        lazy(r"\b(?:[Rr]esum(?:ed|ing)|Continuing training) (?:training )?from checkpoint:? (?P<path>\S+)"),
    ),
    # Of trainers that say so before and not after.
    ("saving", lazy(r"\bSaving the checkpoint\b.{0,60} at step (?P<at>\d{1,18})")),
    ("saving", lazy(r"\bSaving model checkpoint to (?P<path>\S+)")),
    ("saving", lazy(r"\bglobal step (?P<at>\d{1,18}): .{1,200} saving model to '(?P<path>[^']{1,1000})'")),
    ("saving", lazy(r"^saving checkpoint to (?P<path>\S+)$")),
)
_STEP_IN_PATH = lazy(r"(?:checkpoint|global_?step|step|iter)[_-]?0*(\d{1,18})(?=/?$|\D)")


def _checkpoint(text: str, line: Line) -> Event | None:
    if "heckpoint" not in text and "loaded" not in text and "saving model" not in text:
        return None
    for action, pattern in _CHECKPOINTS:
        match = pattern.search(text)
        if match is None:
            continue
        found = match.groupdict()
        path = found.get("path")
        at = found.get("at")
        if at is None and path is not None and action != "loaded" and (step := _STEP_IN_PATH.search(path)):
            at = step[1]
        return Checkpoint(
            **origin(line),
            action=action,
            path=None if path is None else path.strip(),
            iteration=None if at is None else int(at),
        )
    return None

"""What lines of a log say, as typed events; ``hpcjob tail --json`` prints one of them a line.

Common fields: ``event`` (the kind, below), ``source`` (file) and ``offset`` (byte where the line starts), ``line`` (its
number, where the file is read from its start), and where the line's prefixes or file name tell them ``host``,
``rank``, ``local_rank``, ``time``. A field that the line does not have is left out; in JSON ``null`` stands for a
number that is not finite (a loss of NaN). Defaults that tell something, such as the byte 0, are made by a factory:
those msgspec writes.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hpcjob.logs.lazy import lazy
from hpcjob.logs.lines import Line
from hpcjob.logs.prefixes import told

_TEST = lazy(r"\btest (?:data|set)\b")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base: where the event was seen."""

    source: str = ""
    offset: int = msgspec.field(default_factory=int)
    line: int | None = None
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    time: str | None = None


class LogLine(Event, frozen=True, kw_only=True, omit_defaults=True, tag="line"):
    """A line as it is, without its prefixes."""

    text: str


class Iteration(Event, frozen=True, kw_only=True, omit_defaults=True, tag="iteration"):
    """Progress of a training run, as one log line tells it.

    Attributes:
        shape: who wrote the line: ``neox`` (also neoxlite and the Megatron family), ``deepspeed`` (pipeline engine) or
            ``steps`` (torchtitan, nanoGPT, llm.c, Hugging Face Trainer, Lightning, any line with a step and a loss).
        iteration: iterations done, of ``train_iters``; absent where a line tells the epoch only.
        loss: mean over the logged interval; absent when every iteration of it was skipped.
        lr: learning rate.
        tflops: floating-point operations a second and GPU, in 10^12, by the log's own formula.
        iteration_time_ms: time of one iteration, mean over the interval.
        mfu_percent, hfu_percent: share of the GPU's peak used by the model, by the hardware.
        memory_gib: GPU memory in use.
        skipped, nan: iterations of the interval that were skipped for overflow, that had a loss of NaN among these.
        consumed_samples, consumed_tokens: since the start of the run.
        other: what else the line tells and no field above holds, by the line's own words.
    """

    shape: str
    iteration: int | None = None
    train_iters: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    tflops: float | None = None
    mfu_percent: float | None = None
    hfu_percent: float | None = None
    iteration_time_ms: float | None = None
    global_batch: int | None = None
    memory_gib: float | None = None
    epoch: float | None = None
    skipped: int | None = None
    nan: int | None = None
    consumed_samples: int | None = None
    consumed_tokens: int | None = None
    other: dict[str, float] = {}

    @property
    def finite(self) -> bool:
        """False if the loss or the gradient norm is not a number or infinite."""
        loss, norm = self.loss, self.grad_norm
        return (loss is None or math.isfinite(loss)) and (norm is None or math.isfinite(norm))


class Validation(Event, frozen=True, kw_only=True, omit_defaults=True, tag="validation"):
    """Result of an evaluation on held-out data.

    Attributes:
        at: the words of the log: ``iteration 1000``, ``the end of training for val data``.
        loss: in nats a token.
        perplexity: exp(loss).
    """

    at: str
    loss: float
    iteration: int | None = None
    perplexity: float | None = None

    @property
    def of_test(self) -> bool:
        """Whether it is of the test data: ``the end of training for test data``, ``iteration 9 on test set``."""
        return _TEST.search(self.at) is not None


class Checkpoint(Event, frozen=True, kw_only=True, omit_defaults=True, tag="checkpoint"):
    """A checkpoint was ``saved`` or ``loaded`` (``action``), or is being saved: ``saving``."""

    action: str
    path: str | None = None
    iteration: int | None = None


class EngineStep(Event, frozen=True, kw_only=True, omit_defaults=True, tag="engine_step"):
    """What DeepSpeed's engine prints beside the trainer.

    Attributes:
        skipped: steps skipped so far, in all.
        lr: learning rate of each parameter group.
    """

    step: int
    skipped: int | None = None
    lr: list[float] = []
    samples_per_s: float | None = None


class Layout(Event, frozen=True, kw_only=True, omit_defaults=True, tag="layout"):
    """How DeepSpeed's pipeline engine cuts the work.

    Attributes:
        micro_batches, micro_batch_size: of an iteration, of each data-parallel rank.
        stage: of the line's rank, from 0.
        layers: number of layers of the stage; stage_params, total_params: parameters.
    """

    micro_batches: int | None = None
    micro_batch_size: int | None = None
    stage: int | None = None
    layers: int | None = None
    stage_params: int | None = None
    total_params: int | None = None


class Timers(Event, frozen=True, kw_only=True, omit_defaults=True, tag="timers"):
    """Times of the parts of an iteration, in milliseconds; the most over the ranks where the log tells a range."""

    ms: dict[str, float]


class Memory(Event, frozen=True, kw_only=True, omit_defaults=True, tag="memory"):
    """GPU memory by the allocator of PyTorch, in GiB."""

    allocated_gib: float | None = None
    max_allocated_gib: float | None = None
    reserved_gib: float | None = None
    max_reserved_gib: float | None = None


class LossScale(Event, frozen=True, kw_only=True, omit_defaults=True, tag="loss_scale"):
    """A change of the loss scale.

    Attributes:
        overflow: gradients overflowed, and the step was skipped.
        tried: scale of that step.
        scale: scale from now on; absent if it stays.
        hysteresis: overflows left before the scale falls, where it stays for now.
    """

    overflow: bool = False
    tried: float | None = None
    scale: float | None = None
    hysteresis: int | None = None


class Finding(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finding"):
    """A line that a rule knows (``hpcjob/logs/rules/*.yml``).

    Attributes:
        rule: the rule's id.
        topic: what it is about: ``network``, ``memory``, ``walltime``, ...
        role: see `hpcjob.logs.rulebook.ROLES`.
        say: what it means; the same for all ranks that say the same.
        fix: what to do, if something is to be done.
        text: the line itself, without prefixes.
        fields: what the rule's pattern took from the line.
    """

    rule: str
    topic: str
    role: str
    say: str
    text: str
    fix: str | None = None
    fields: dict[str, str] = {}


class Traceback(Event, frozen=True, kw_only=True, omit_defaults=True, tag="traceback"):
    """A Python exception that ended or troubled a process.

    Attributes:
        exception: class name as printed.
        message: its text; only the first line.
        exception_line: number of the line with the exception, as ``line`` is that of the traceback's first.
        at: innermost place of the trace, ``file:line in function``.
        trace: the lines from ``Traceback`` to the exception; the middle of a long one is left out.
        followed: it was raised while another was handled, or because of it; that one was printed before.
        role, topic, rule, say, fix: as in `Finding`, if a rule knows the exception.
    """

    exception: str
    message: str
    exception_line: int | None = None
    at: str | None = None
    trace: list[str] = []
    followed: bool = msgspec.field(default_factory=bool)
    role: str = msgspec.field(default_factory=lambda: "cause")
    topic: str = msgspec.field(default_factory=lambda: "program")
    rule: str | None = None
    say: str | None = None
    fix: str | None = None

    @property
    def said(self) -> str:
        """Class and message, as Python prints them in one line."""
        return f"{self.exception}: {self.message}" if self.message else self.exception


class ProcessEnd(Event, frozen=True, kw_only=True, omit_defaults=True, tag="process_end"):
    """A failed process in the table that torchrun prints at the end.

    Attributes:
        rank: global rank of the failed process.
        exit_code: as printed: negative is the number of a signal.
        root_cause: torchrun's "first observed failure".
    """

    exit_code: int
    root_cause: bool = msgspec.field(default_factory=bool)
    note: str | None = None


class ErrorGroup(Event, frozen=True, kw_only=True, omit_defaults=True, tag="error_group"):
    """Errors that are alike, put together at the end; place and time are those of the first.

    Attributes:
        kind: ``traceback``, ``finding`` or ``process_end``; role, topic, rule, fix: as in `Finding`.
        text: what they say.
        count: lines; processes: how many said it, as far as known; ranks, hosts: which.
    """

    kind: str
    role: str
    text: str
    topic: str | None = None
    rule: str | None = None
    fix: str | None = None
    count: int = msgspec.field(default_factory=int)
    processes: int = msgspec.field(default_factory=int)
    ranks: list[int] = []
    hosts: list[str] = []


class Job(Event, frozen=True, kw_only=True, omit_defaults=True, tag="job"):
    """A job's script began (``started``), or following went over to the next job of the run (``followed``).

    Attributes:
        id: of the job; after: of the job before it.
    """

    action: str
    id: str
    after: str | None = None


def origin(line: Line) -> dict[str, Any]:
    """Return the common fields of an event, taken from its line."""
    return {
        "source": line.source,
        "offset": line.offset,
        "line": line.number or None,
        "host": told(line.host),
        "rank": line.rank,
        "local_rank": line.local_rank,
        "time": line.time,
    }

"""From the lines of one job's logs to its attempts: stretches of iterations without a restart between them.

A new attempt begins where a checkpoint is loaded or the iteration number goes back. A line that repeats an earlier one
in all its numbers is a copy (rank 0's lines stand in the job's log too), no restart. Of several ranks that print
iterations, the one that prints most is taken.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import msgspec

from hpcjob.logs import parse
from hpcjob.logs.events import Checkpoint, EngineStep, Event, Iteration, Memory, Validation
from hpcjob.logs.lines import Line
from hpcjob.logs.metrics import sequence_length
from hpcjob.logs.reading import Reader
from hpcjob.logs.shapes import Interest, Shapes
from hpcjob.logs.sources import Source
from hpcjob.logs.training import TrainingReader
from hpcjob.report.attempts import Attempt, Log
from hpcjob.report.json_lines import events_of_json
from hpcjob.report.quantities import COLUMN, NAMES, WIDTH
from hpcjob.report.tables import Builder, Table, empty, joined

EPOCH_STEPS = 1_000_000
"""Steps of one epoch in logs that tell the epoch only."""
_VALUES = attrgetter(*NAMES, "epoch")
_STEP_AT_MOST = 2**62 // EPOCH_STEPS
_MEMORY = ("max_allocated_gib", "allocated_gib", "max_reserved_gib", "reserved_gib")


def shapes() -> Shapes:
    """Return the shapes of lines that tell of training."""
    return Shapes([(Interest.ALL, (*parse.TABLE_NEEDLES, b"seq_length .", *parse.NEEDLES))], bounded=False)


def read_log(sources: Iterable[Source], *, hosts: Iterable[str] = (), metrics: Path | None = None) -> Log:
    """Read the files of one job.

    Args:
        metrics: the trainer's ``metrics.jsonl``; it fills in what the lines do not tell, or stands for them.

    Raises:
        InputError: a file cannot be read.
    """
    reader = Reader(shapes(), hosts=hosts)
    log = gather(line for source in sources for line in reader.file(source))
    if metrics is None or not metrics.is_file():
        return log
    exact = gather(Reader(shapes()).file(Source(metrics)))
    if not log.attempts:
        return exact
    table = joined([attempt.table for attempt in exact.attempts])
    return Log([replace(attempt, table=attempt.table.filled(table)) for attempt in log.attempts], log.notes)


def gather(lines: Iterable[Line]) -> Log:
    """Return the attempts that lines tell of, in their order."""
    collector = _Collector()
    for line in lines:
        collector.line(line)
    return collector.log()


class _Stream:
    """The iterations that one rank prints, cut into attempts."""

    def __init__(self, loads: int) -> None:
        self.attempts: list[Attempt] = []
        self.builders = [Builder()]
        self.loads = loads  # checkpoint loads that were seen when the attempt began
        self._open = Attempt(empty())
        self._before: dict[float, int] = {}  # steps before each epoch, where they are counted anew in each
        self._latest: tuple[float, int] | None = None  # epoch and step as the log told them

    def counted(self, step: int, epoch: float | None) -> int:
        """Return a step counted from the start of the training: ESPnet and others count batches within their epoch."""
        if epoch is None or not epoch.is_integer():
            return step
        if epoch not in self._before:
            known, last = self._latest or (epoch, 0)
            anew = epoch > known and step <= last
            self._before[epoch] = self._before.get(known, 0) + (last if anew else 0)
        self._latest = epoch, step
        return self._before[epoch] + step

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(map(len, self.builders))

    @property
    def last(self) -> int | None:
        """The latest step."""
        steps = self.builders[-1].steps
        return steps[-1] if steps else None

    @property
    def open(self) -> Attempt:
        """The attempt that goes on; its table is made at the end."""
        return self._open

    def begin(self, load: Checkpoint | None, loads: int, *, by_epoch: bool, source: str) -> None:
        """Start an attempt."""
        if len(self.builders[-1]):
            self.attempts.append(self._open)
            self.builders.append(Builder())
        self.loads = loads
        start, path = (None, None) if load is None else (load.iteration, load.path)
        self._open = Attempt(empty(), start, path, by_epoch=by_epoch, source=source)

    def copied(self, step: int, values: Sequence[float | None]) -> bool:
        """Return whether these very numbers were read before."""
        return any(builder.holds(step, values) for builder in reversed(self.builders))

    def finished(self, sequence: int | None) -> list[Attempt]:
        """Return the attempts, with tokens a second where samples a second and the length of a sequence tell them."""
        tables = (_with_tokens(builder.table(), sequence) for builder in self.builders)
        every = [*self.attempts, self._open]
        return [replace(one, table=table) for one, table in zip(every, tables, strict=True) if len(table)]


class _Collector:
    """Takes the lines of one job."""

    def __init__(self) -> None:
        self._streams: dict[int | None, _Stream] = {}
        self._training = TrainingReader()
        self._engine = Builder()
        self._sequence: int | None = None
        self._load: Checkpoint | None = None
        self._loads = 0
        self._loaded_path: str | None = None
        self._saved: dict[int, str | None] = {}  # before the first iteration
        self._memory: float | None = None

    def line(self, line: Line) -> None:
        """Take a line in."""
        text = line.text
        if self._sequence is None and "seq_length ." in text:
            self._sequence = sequence_length(text)
        for event in events_of_json(line) if text.startswith('{"') else self._training.read(line):
            self._event(event)

    def _event(self, event: Event) -> None:
        if isinstance(event, Iteration):
            self._iteration(event)
        elif isinstance(event, Checkpoint):
            self._checkpoint(event)
        elif isinstance(event, Validation):
            stream = self._stream_of(event.rank)
            step = event.iteration if event.iteration is not None else None if stream is None else stream.last
            if stream is not None and step is not None and step <= _STEP_AT_MOST * EPOCH_STEPS:
                (stream.open.tests if event.of_test else stream.open.validations)[step] = event.loss
        elif isinstance(event, EngineStep):
            self._engine_step(event)
        elif isinstance(event, Memory):
            self._memory = next((value for name in _MEMORY if (value := getattr(event, name)) is not None), None)
            stream = self._stream_of(event.rank)
            if stream is not None and self._memory is not None:
                stream.builders[-1].fill_last(COLUMN["memory_gib"], self._memory)
                self._memory = None

    def _stream_of(self, rank: int | None) -> _Stream | None:
        """Return the rank's iterations, else those of the first rank that printed some."""
        return self._streams.get(rank) or next(iter(self._streams.values()), None)

    def _iteration(self, event: Iteration) -> None:
        by_epoch = event.iteration is None
        if event.iteration is not None:
            step = event.iteration
        elif event.epoch is not None and 0 <= event.epoch < _STEP_AT_MOST:
            step = round(event.epoch * EPOCH_STEPS)
        else:
            return
        if step > _STEP_AT_MOST * EPOCH_STEPS:
            return
        values = [*_VALUES(event), None if event.time is None else seconds(event.time)]
        if self._memory is not None and values[COLUMN["memory_gib"]] is None:
            values[COLUMN["memory_gib"]], self._memory = self._memory, None
        self._row(event, step, values, by_epoch=by_epoch)

    def _row(self, event: Iteration, step: int, values: Sequence[float | None], *, by_epoch: bool) -> None:
        stream = self._streams.get(event.rank)
        if stream is None:
            stream = self._streams[event.rank] = _Stream(self._loads)
            stream.begin(self._load, self._loads, by_epoch=by_epoch, source=event.source)
            stream.open.saved.update(self._saved)
        if not by_epoch:
            step = stream.counted(step, event.epoch)
        last = stream.last
        load = self._load if stream.loads != self._loads else None
        if last is not None and by_epoch != stream.open.by_epoch:
            return  # a summary among the steps, or a step among epochs
        if last is not None and step < last and stream.copied(step, values):
            return
        if last is not None and (step < last or load is not None):
            stream.begin(load, self._loads, by_epoch=by_epoch, source=event.source)
        elif last == step:
            stream.builders[-1].update_last(values)
            return
        stream.builders[-1].append(step, values)

    def _checkpoint(self, event: Checkpoint) -> None:
        if event.action == "loaded":
            if event.iteration is None:  # its iteration comes on the next line, or it is of weights alone
                self._loaded_path = event.path
                return
            known = [one.open.start == event.iteration and one.loads == self._loads for one in self._streams.values()]
            if known and all(known):
                return  # another rank says it too
            self._load = event if event.path else msgspec.structs.replace(event, path=self._loaded_path)
            self._loads += 1
            return
        if event.action != "saved":
            return
        for stream in self._streams.values():
            step = event.iteration if event.iteration is not None else stream.last
            if step is not None and step <= _STEP_AT_MOST * EPOCH_STEPS:
                stream.open.saved[step] = event.path
        if not self._streams and event.iteration is not None and event.iteration <= _STEP_AT_MOST:
            self._saved[event.iteration] = event.path

    def _engine_step(self, event: EngineStep) -> None:
        values: list[float | None] = [None] * WIDTH
        values[COLUMN["lr"]] = event.lr[0] if event.lr else None
        values[COLUMN["samples_per_s"]] = event.samples_per_s
        if event.step == (self._engine.steps[-1] if self._engine.steps else None):
            self._engine.update_last(values)
        else:
            self._engine.append(event.step, values)

    def log(self) -> Log:
        """Return what all lines told."""
        engine = self._engine.table()
        if not self._streams:
            return Log([Attempt(engine)] if len(engine) else [])
        rank, stream = max(self._streams.items(), key=lambda item: item[1].count)
        notes = []
        if len(self._streams) > 1:
            ranks = len(self._streams) - 1
            shown = "lines without rank" if rank is None else f"rank {rank}"
            notes.append(f"the iterations of {shown} are shown; {ranks} other ranks print some too")
        attempts = stream.finished(self._sequence)
        return Log([replace(one, table=one.table.filled(engine)) for one in attempts], notes)


def seconds(text: str) -> float | None:
    """Return a time of a log as seconds since 1970, local where it names no zone; None if it is none."""
    try:
        time = datetime.datetime.fromisoformat(text.replace(",", ".").replace("Z", "+00:00"))
        return time.timestamp()
    except (ValueError, OverflowError):
        return None


def _with_tokens(table: Table, sequence: int | None) -> Table:
    samples, tokens = COLUMN["samples_per_s"], COLUMN["tokens_per_s"]
    take = table.told[:, samples] & ~table.told[:, tokens]
    if sequence is None or not take.any():
        return table
    values, told = table.values.copy(), table.told.copy()
    values[take, tokens] = (values[take, samples] * sequence).round(6)  # as many digits as the factors have
    told[take, tokens] = True
    return Table(table.steps, values, told)

"""One rank's part in a training run: set up, the loop, and the end."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from neoxlite.checkpoint.save import save
from neoxlite.data import DataSets, MicroBatches, build_datasets, valid_start_batch
from neoxlite.errors import ConfigError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import Schedule
from neoxlite.parallel.topology import Topology
from neoxlite.tokenizers import build_tokenizer
from neoxlite.training.create import create_engine
from neoxlite.training.divergence import Divergence
from neoxlite.training.engine import Engine, Step
from neoxlite.training.environment import RunFiles, peak_tflops
from neoxlite.training.evaluation import mean_over_replicas
from neoxlite.training.metrics import Costs, Interval, Recorder
from neoxlite.training.outcome import COMPLETED, STOPPED, WALLTIME, Outcome, Progress
from neoxlite.training.progress import ProgressLine
from neoxlite.training.resume import Position, checkpoint_contents, find_start, resume
from neoxlite.training.schedule import save_iterations
from neoxlite.training.sigterm import Sigterm
from neoxlite.training.stages import stage_line
from neoxlite.training.stop import NONE, StopSignal
from neoxlite.training.stop import WALLTIME as FOR_WALLTIME

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


class Trainer:
    """Built on every rank with the process groups in place; `train` runs it once."""

    def __init__(self, cfg: NeoxConfig, topology: Topology, device: torch.device, files: RunFiles, progress: Progress):
        self.cfg = cfg
        self.topology = topology
        self.device = device
        self.files = files
        self.progress = progress
        self.is_first = topology.rank == 0
        for warning in cfg.warnings:
            self._say(f"WARNING: {warning}")
        for note in getattr(cfg, "notes", ()):
            self._say(note)
        start = find_start(cfg)
        if start.warning:
            self._say(start.warning)
        tokenizer = build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file)
        self.padded_vocab_size = cfg.padded_vocab_size(tokenizer.vocab_size)
        self._say(
            f" > padded vocab (size: {tokenizer.vocab_size}) with {self.padded_vocab_size - tokenizer.vocab_size} "
            f"dummy tokens (new size: {self.padded_vocab_size})"
        )
        if cfg.eod_mask_loss and tokenizer.eod is None:
            raise ConfigError(
                f"eod_mask_loss: {cfg.tokenizer_type} has no end-of-document token", hint="set eod_mask_loss: false"
            )
        self.data = self._open_data()
        self.engine = self._build_engine(tokenizer.eod)
        self.schedule = Schedule.from_config(cfg)
        self.position = self._resume(start.folder)
        self._save_at = save_iterations(cfg) if cfg.save else set()
        self._saved_at: int | None = None
        self._trained = False
        self._divergence = Divergence(self.position.iteration)
        self._progress_line = ProgressLine(cfg.train_iters, self.position.iteration)

    def train(self, sigterm: Sigterm) -> Outcome:
        """Run the loop to train_iters, or until a stop is asked for, and return how it ended."""
        cfg = self.cfg
        world_size = self.topology.grid.world_size
        self.stop = StopSignal(self.files.stop, lambda: sigterm.received, self.topology.rank, world_size, self.device)
        self.recorder = self._recorder()
        sigterm.only_flag()
        with contextlib.closing(self.recorder):
            if self.position.iteration == 0 and 0 in self._save_at:
                self._save()
            requested = self._loop()
            done = self.position.iteration >= cfg.train_iters
            self._divergence.check(self.progress.checkpoint, at_end=True)
            if cfg.save and self._saved_at != self.position.iteration and self._trained:
                self._save()
            if done:
                return self._completed()
            kind = WALLTIME if requested == FOR_WALLTIME else STOPPED
            message = None if cfg.save else "nothing was saved: save is not set"
            return self._outcome(kind, message)

    def _completed(self) -> Outcome:
        """Evaluate at the end of training; the outcome is on the disk before, for the evaluation may be cut off."""
        outcome = self._outcome(COMPLETED, None)
        if self.is_first and self.files.outcome is not None:
            outcome.write(self.files.outcome)
        if self._final_evaluation():
            return outcome
        return self._outcome(COMPLETED, "the evaluation at the end was left out: asked to end")

    def _outcome(self, kind: str, message: str | None) -> Outcome:
        return Outcome(kind, self.position.iteration, self.progress.checkpoint, message)

    def _loop(self) -> int:
        """Train until the last iteration or a request to stop, which is returned."""
        cfg = self.cfg
        batches = self._train_batches()
        window = _Window(self.topology, self.device)
        requested = NONE
        while self.position.iteration < cfg.train_iters and requested == NONE:
            self.stop.post()
            iteration = self._iterate(batches, window)
            if iteration % cfg.log_interval == 0:
                self._record(window)
            with window.paused():
                if iteration in self._save_at:
                    self._save_if_sound(window)
                requested = self.stop.read()
                if iteration % cfg.eval_interval == 0 and iteration < cfg.train_iters and requested == NONE:
                    self._validate(f"iteration {iteration}")
                    requested = self.stop.read()
            if self.is_first:
                self._progress_line.update(iteration)
        if window.steps:
            self._record(window)
        return requested

    def _iterate(self, batches: MicroBatches, window: _Window) -> int:
        """Do one iteration and return its number, counted from 1."""
        cfg, position = self.cfg, self.position
        self.engine.set_lr(self.schedule.lr(position.steps_taken))
        micro_batches = itertools.islice(batches, cfg.gradient_accumulation_steps)
        step = self.engine.train_step(micro_batches, position.iteration + 1)
        position.advance(cfg.train_batch_size, skipped=step.skipped)
        window.add(step, self.schedule.lr(position.steps_taken))
        self.progress.iteration = position.iteration
        self._trained = True
        return position.iteration

    def _record(self, window: _Window) -> None:
        measured = window.close(self.position.iteration)
        if self.is_first:
            self.recorder.interval(measured, self.device)
        self._follow(measured)

    def _follow(self, measured: Interval) -> None:
        self._divergence.add(measured.iteration, measured.losses, measured.grad_norms, measured.skipped)
        self._divergence.check(self.progress.checkpoint)

    # Setting up

    def _say(self, text: str) -> None:
        if self.is_first:
            print(text, flush=True)

    def _open_data(self) -> DataSets:
        barrier = dist.barrier if self.topology.grid.world_size > 1 else None
        data = build_datasets(self.cfg, is_builder=self.is_first, wait=barrier)
        if data.train is None:
            raise ConfigError("there is no training data", hint="give split a share above 0 for training")
        self._say(data.describe())
        return data

    def _build_engine(self, eod: int | None) -> Engine:
        cfg = self.cfg
        spec = ModelSpec.from_config(cfg, self.padded_vocab_size)
        self._say(f" > total params: {cfg.parameter_count(self.padded_vocab_size):,}")
        engine = create_engine(cfg, spec, self.topology, self.device, eod)
        if self.topology.data_rank == self.topology.tensor_rank == 0:
            # In one write: the stages may share a terminal.
            print(stage_line(cfg, self.padded_vocab_size, self.topology) + "\n", end="", flush=True)
        return engine

    def _resume(self, folder: Path | None) -> Position:
        resumed = resume(folder, self.cfg, self.engine, self.schedule, self.padded_vocab_size, self._say)
        self.schedule = resumed.schedule
        self.progress.iteration = resumed.position.iteration
        self.progress.checkpoint = str(folder) if folder is not None else None
        return resumed.position

    def _train_batches(self) -> MicroBatches:
        cfg = self.cfg
        together = cfg.train_micro_batch_size_per_gpu * self.topology.data_size
        start, rest = divmod(self.position.consumed_samples, together)
        if rest:
            self._say(f"WARNING: {together - rest} samples are left out: the position is inside a batch of {together}")
            start += 1
        if start:
            self._say(f"setting training data start iteration to {start}")
        return self._micro_batches(self.data.train, start)

    def _micro_batches(self, dataset: object, start: int) -> MicroBatches:
        return MicroBatches(
            dataset,  # type: ignore[arg-type]
            self.cfg.train_micro_batch_size_per_gpu,
            self.topology.data_rank,
            self.topology.data_size,
            start,
            vocab_size=self.padded_vocab_size,
        )

    def _recorder(self) -> Recorder:
        cfg = self.cfg
        flops = cfg.flops_per_iteration(self.padded_vocab_size)
        model_flops = cfg.architecture.flops_per_iteration(self.padded_vocab_size, cfg.train_batch_size, False)
        first = self.is_first
        return Recorder(
            train_iters=cfg.train_iters,
            costs=Costs(
                samples=cfg.train_batch_size,
                tokens=cfg.train_batch_size * cfg.seq_length,
                flops=flops,
                model_flops=model_flops,
                world_size=self.topology.grid.world_size,
                peak_tflops=getattr(cfg, "peak_theoretical_tflops", None) or peak_tflops(),
            ),
            metrics_file=self.files.metrics if first else None,
            tensorboard_dir=cfg.tensorboard_dir if first else None,
            progress=self._progress_line,
        )

    # Validation and checkpoints

    def _validate(self, prefix: str) -> None:
        self._evaluate(self.data.valid, prefix, self.position.iteration - 1, "validation")

    def _final_evaluation(self) -> bool:
        last = self.position.iteration
        return self._evaluate(
            self.data.valid, "the end of training for val data", last, "validation"
        ) and self._evaluate(self.data.test, "the end of training for test data", 0, "test")

    def _evaluate(self, dataset: object, prefix: str, past: int, name: str) -> bool:
        """Evaluate eval_iters batches behind those of the validations up to ``past``; False if a stop cut it off."""
        cfg = self.cfg
        if dataset is None or cfg.eval_iters == 0:
            return True
        start = valid_start_batch(
            past,
            eval_interval=cfg.eval_interval,
            eval_iters=cfg.eval_iters,
            gradient_accumulation_steps=cfg.gradient_accumulation_steps,
        )
        batches = self._micro_batches(dataset, start)
        count = cfg.eval_iters * cfg.gradient_accumulation_steps
        loss = self.engine.mean_loss(batches, count, self.stop)
        if loss is None:
            self._say(f"the evaluation at {prefix} was cut off: asked to end")
            return False
        if self.is_first:
            self.recorder.validation(prefix, self.position.iteration, loss.item(), name=name)
        return True

    def _save_if_sound(self, window: _Window) -> None:
        """Save, unless the last iteration's numbers say that the weights are spoilt."""
        if window.steps:
            self._follow(window.measure(self.position.iteration))
        if not self._divergence.spoilt:
            self._save()
        elif self.is_first:
            iteration = self.position.iteration
            self.recorder.print(f"WARNING: no checkpoint of iteration {iteration}: its loss or gradient is not finite")

    def _save(self) -> None:
        cfg = self.cfg
        iteration = self.position.iteration
        contents = checkpoint_contents(cfg, self.engine, self.schedule, self.position, self.padded_vocab_size)
        folder = save(Path(cfg.save or ""), self.engine, contents, keep_last=cfg.keep_last_n_checkpoints)
        self.progress.checkpoint = str(folder)
        self._saved_at = iteration
        if self.is_first:
            self.recorder.print(f"saved checkpoint of iteration {iteration} to {folder}")


class _Window:
    """The steps since the last log line, and the time they took without saves and validations."""

    def __init__(self, topology: Topology, device: torch.device):
        self._topology = topology
        self._device = device
        self._restart()

    def _restart(self) -> None:
        self.steps: list[Step] = []
        self._lrs: list[float] = []
        self._paused_s = 0.0
        self._began = time.perf_counter()

    def add(self, step: Step, lr: float) -> None:
        self.steps.append(step)
        self._lrs.append(lr)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began

    def close(self, iteration: int) -> Interval:
        """Gather the window's numbers from the device and all replicas, and begin the next window."""
        interval = self.measure(iteration)
        self._restart()
        return interval

    def measure(self, iteration: int) -> Interval:
        """Return the numbers so far; all ranks call this."""
        losses: Tensor = mean_over_replicas(torch.stack([step.loss for step in self.steps]), self._topology)
        values = losses.tolist()
        norms = [float(step.grad_norm) for step in self.steps]
        skipped = [step.skipped for step in self.steps]
        seconds = time.perf_counter() - self._began - self._paused_s
        return Interval(iteration, seconds, values, self._lrs, norms, skipped)

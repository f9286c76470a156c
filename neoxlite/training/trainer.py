"""One rank's part in a training run: set up, the loop, and the end."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neoxlite.data import PrefetchedBatches
from neoxlite.errors import ConfigError
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.schedule import Schedule
from neoxlite.parallel.topology import Topology
from neoxlite.tokenizers import build_tokenizer
from neoxlite.training.agreement import check_start
from neoxlite.training.create import create_engine
from neoxlite.training.engine import Engine
from neoxlite.training.environment import RunFiles
from neoxlite.training.gpu_watch import GpuWatch
from neoxlite.training.metrics import Recorder
from neoxlite.training.outcome import COMPLETED, STOPPED, WALLTIME, Outcome, Progress
from neoxlite.training.phases import Phases, collectives_timed
from neoxlite.training.progress import ProgressLine
from neoxlite.training.recording import build_recorder, costs_of
from neoxlite.training.resume import Resumed, behind_the_decay, checkpoint_contents, find_start, resume
from neoxlite.training.resumed_loss import check_resumed_loss
from neoxlite.training.run_data import RunData
from neoxlite.training.saving import SaveReport, Saves
from neoxlite.training.signals import EndSignals
from neoxlite.training.stages import stage_line
from neoxlite.training.stop import NONE, StopSignal
from neoxlite.training.stop import WALLTIME as FOR_WALLTIME
from neoxlite.training.supervision import Supervision
from neoxlite.training.window import Window

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig
    from neoxlite.data.gpt_dataset import SampleDataset


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
            self._say(f"note: {note}")
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
        self.data = RunData(
            cfg,
            topology,
            device,
            tokenizer,
            self.padded_vocab_size,
            saved=start.data,
            consumed_samples=start.consumed_samples,
            say=self._say,
        )
        check_start(start.folder, self.padded_vocab_size, self.data.order, topology.grid.world_size)
        cfg = self.cfg = cfg.with_train_iters(self.data.train_iters)
        self.engine = self._build_engine(tokenizer.eod)
        self.schedule = Schedule.from_config(cfg)
        resumed = self._resume(start.folder)
        self.position = resumed.position
        self._stored_losses = resumed.losses if (cfg.checkpoint or {}).get("check_resumed_loss", True) else []
        self.supervision = Supervision(cfg, self.engine, self.data, self.position.iteration, resumed.losses)
        self.saves = Saves(cfg, self.engine, self._report_saved, progress)
        self._trained = False
        self._progress_line = ProgressLine(cfg.train_iters, self.position.iteration)

    def train(self, signals: EndSignals) -> Outcome:
        """Run the loop to train_iters, or until a stop is asked for, and return how it ended."""
        self.stop = StopSignal(
            self.files.stop,
            lambda: signals.received,
            self.topology.rank,
            self.topology.grid.world_size,
            self.device,
            save_failed=lambda: self.saves.failed,
        )
        signals.only_flag(self._interrupted_notice() if self.is_first else None)
        with contextlib.ExitStack() as ends:
            if self.is_first:
                self.recorder = ends.enter_context(contextlib.closing(self._recorder()))
                self.recorder.start(self.position.iteration, self.progress.checkpoint)
            ends.enter_context(contextlib.closing(self.saves))
            self.gpu = ends.enter_context(contextlib.closing(GpuWatch(self.device)))
            ends.enter_context(collectives_timed(self.engine.phases))
            return self._train()

    def _train(self) -> Outcome:
        cfg = self.cfg
        if self.position.iteration == 0 and 0 in self.saves:
            self._save()
        requested = self._loop()
        self.saves.wait()
        done = self.position.iteration >= cfg.train_iters
        self.supervision.check_end(self.progress.checkpoint)
        if cfg.save and self.saves.last != self.position.iteration and self._trained:
            self._save()
            self.saves.wait()
        if done:
            return self._completed()
        kind = WALLTIME if requested == FOR_WALLTIME else STOPPED
        message = None if cfg.save else "nothing was saved: save is not set"
        return self._outcome(kind, message)

    def _completed(self) -> Outcome:
        """Evaluate at the end of training; the outcome is on the disk before, for the evaluation may be cut off."""
        outcome = self._outcome(COMPLETED, None)
        if self.is_first and self.files.outcome is not None:
            with contextlib.suppress(OSError):  # it is written again, and told, at the very end
                outcome.write(self.files.outcome)
        if self._final_evaluation():
            return outcome
        return self._outcome(COMPLETED, "the evaluation at the end was skipped: asked to end")

    def _outcome(self, kind: str, message: str | None) -> Outcome:
        return Outcome(kind, self.position.iteration, self.progress.checkpoint, message)

    def _loop(self) -> int:
        """Train until the last iteration or a request to stop, which is returned."""
        cfg = self.cfg
        window = Window(self.engine)
        requested = NONE
        with self.data.train_batches() as batches:
            while self.position.iteration < cfg.train_iters and requested == NONE:
                self.stop.post()
                iteration = self._iterate(batches, window)
                self._check_resumed_loss(window)
                if iteration % cfg.log_interval == 0:
                    self._record(window)
                with window.paused():
                    self.saves.poll()
                    if iteration in self.saves:
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

    def _iterate(self, batches: PrefetchedBatches[Tensor], window: Window) -> int:
        """Do one iteration and return its number, counted from 1."""
        cfg, position = self.cfg, self.position
        self.engine.set_lr(self.schedule.lr(position.steps_taken))
        micro_batches = itertools.islice(batches, cfg.gradient_accumulation_steps)
        step = self.engine.train_step(micro_batches, position.iteration + 1)
        position.advance(cfg.train_batch_size, skipped=step.skipped)
        self.data.advance(cfg.train_batch_size)
        window.add(step, self.schedule.lr(position.steps_taken), batches.take_wait_s())
        self.progress.iteration = position.iteration
        self._trained = True
        return position.iteration

    def _record(self, window: Window) -> None:
        measured = window.close(self.position.iteration)
        gpu = self.gpu.look()
        if self.is_first:
            self.recorder.interval(measured, self.device, gpu)
        with window.paused():
            self.supervision.look(measured, self._print, self._record_event)
        self.supervision.follow(measured, self.progress.checkpoint)

    def _check_resumed_loss(self, window: Window) -> None:
        """Behind a resumed run's first step: compare its loss with those that the checkpoint has."""
        stored, self._stored_losses = self._stored_losses, []
        if stored:
            iteration = self.position.iteration
            loss = window.measure(iteration).losses[-1]
            check_resumed_loss(stored, iteration, loss, self.progress.checkpoint or "the checkpoint")

    def _print(self, text: str) -> None:
        if self.is_first:
            self.recorder.print(text)

    def _record_event(self, event: str, iteration: int, /, **fields: Any) -> None:
        if self.is_first:
            self.recorder.event(event, iteration, **fields)

    # Setting up

    def _interrupted_notice(self) -> str:
        saved = "a checkpoint is saved" if self.cfg.save else "nothing is saved (save is not set)"
        return f"Ctrl-C: {saved} and the run ends; a second Ctrl-C ends it at once"

    def _say(self, text: str) -> None:
        if self.is_first:
            print(text, flush=True)

    def _build_engine(self, eod: int | None) -> Engine:
        cfg = self.cfg
        spec = ModelSpec.from_config(cfg, self.padded_vocab_size)
        self._say(f" > total params: {cfg.parameter_count(self.padded_vocab_size):,}")
        engine = create_engine(cfg, spec, self.topology, self.device, eod)
        for note in engine.notes:
            self._say(f" > {note}")
        engine.phases = Phases(self.device, enabled=cfg.wall_clock_breakdown)
        if self.topology.data_rank == self.topology.tensor_rank == 0:
            # In one write: the stages may share a terminal.
            print(stage_line(cfg, self.padded_vocab_size, self.topology) + "\n", end="", flush=True)
        return engine

    def _resume(self, folder: Path | None) -> Resumed:
        resumed = resume(folder, self.cfg, self.engine, self.schedule, self.padded_vocab_size, self._say)
        self.schedule = resumed.schedule
        warning = behind_the_decay(self.schedule, self.cfg.train_iters)
        if warning is not None:
            self._say(warning)
        self.progress.iteration = resumed.position.iteration
        self.progress.checkpoint = str(folder) if folder is not None else None
        return resumed

    def _recorder(self) -> Recorder:
        costs = costs_of(self.cfg, self.padded_vocab_size, self.device)
        start = self.position.iteration
        return build_recorder(self.cfg, costs, start, self.files.metrics, self._progress_line, self._say)

    # Validation and checkpoints

    def _validate(self, prefix: str) -> None:
        self._evaluate(self.data.sets.valid, prefix, self.position.iteration - 1, "validation")

    def _final_evaluation(self) -> bool:
        last = self.position.iteration
        return self._evaluate(
            self.data.sets.valid, "the end of training for val data", last, "validation"
        ) and self._evaluate(self.data.sets.test, "the end of training for test data", 0, "test")

    def _evaluate(self, dataset: SampleDataset | None, prefix: str, past: int, name: str) -> bool:
        """Evaluate eval_iters batches behind those of the validations up to ``past``; False if a stop cut it off."""
        if dataset is None or self.cfg.eval_iters == 0:
            return True
        count = self.cfg.eval_iters * self.cfg.gradient_accumulation_steps
        with self.data.evaluation_batches(dataset, past) as batches:
            loss = self.engine.mean_loss(batches, count, self.stop)
        if loss is None:
            self._say(f"the evaluation at {prefix} was interrupted: asked to end")
            return False
        if self.is_first:
            self.recorder.validation(prefix, self.position.iteration, loss.item(), name=name)
        return True

    def _save_if_sound(self, window: Window) -> None:
        """Save, unless the last iteration's numbers say that the weights are spoilt."""
        if window.steps:
            self.supervision.follow(window.measure(self.position.iteration), self.progress.checkpoint)
        if not self.supervision.spoilt:
            self._save()
        elif self.is_first:
            iteration = self.position.iteration
            self.recorder.print(f"WARNING: no checkpoint of iteration {iteration}: its loss or gradient is not finite")

    def _save(self) -> None:
        self.saves.save(
            checkpoint_contents(
                self.cfg,
                self.engine,
                self.schedule,
                self.position,
                self.padded_vocab_size,
                self.data.state(),
                self.supervision.losses.as_list(),
            )
        )

    def _report_saved(self, saved: SaveReport) -> None:
        self._print(f"saved checkpoint of iteration {saved.iteration} to {saved.folder}")
        self._record_event("checkpoint", saved.iteration, **saved.fields())

"""The saves of a run: at which iterations, at once or beside training, and what is said of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neoxlite.checkpoint.background import BackgroundSaver
from neoxlite.checkpoint.save import Contents, save
from neoxlite.training.outcome import Progress
from neoxlite.training.schedule import save_iterations

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


@dataclass(frozen=True)
class SaveReport:
    """A checkpoint on the disk, and what it cost."""

    iteration: int
    folder: Path
    blocked_s: float
    """How long training stood still."""
    seconds: float
    """From the beginning of the save to the last rename."""
    in_background: bool
    copy_bytes: int
    """Host memory that this rank keeps for the copy of its share; 0 of a save at once."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the event in metrics.jsonl (docs/training.md)."""
        return {
            "background": self.in_background,
            "blocked_ms": self.blocked_s * 1000,
            "seconds": self.seconds,
            "copy_mb": self.copy_bytes / 2**20,
        }


class Saves:
    """Saves as the configuration asks; every rank makes one and calls the methods together.

    Args:
        report: called with each checkpoint that has reached the disk, from the thread of training.
        progress: learns of each at once: an outcome does not name an older one, which may be removed by then.
    """

    def __init__(self, cfg: NeoxConfig, engine: Any, report: Callable[[SaveReport], None], progress: Progress):
        self._root = Path(cfg.save or "")
        self._engine = engine
        self._keep_last = cfg.keep_last_n_checkpoints
        self._report = report
        self._progress = progress
        self._iterations = save_iterations(cfg) if cfg.save else set()
        self._blocked_s: dict[int, float] = {}
        in_background = bool(cfg.save) and bool((cfg.checkpoint or {}).get("async_save"))
        self._background = BackgroundSaver(engine, self._on_disk) if in_background else None
        self.last: int | None = None
        """The iteration of the last save that was begun."""

    def __contains__(self, iteration: int) -> bool:
        """Tell whether a checkpoint is due after ``iteration``."""
        return iteration in self._iterations

    @property
    def failed(self) -> bool:
        """Whether a save in the background has failed on this rank; `wait` then raises its error."""
        return self._background is not None and self._background.failed

    def save(self, contents: Contents) -> None:
        """Save; in the background, after the save before this one.

        Raises:
            CheckpointError: on every rank: this save, or the one before, could not be written.
        """
        iteration = int(contents.training["iteration"])
        began = time.perf_counter()
        if self._background is None:
            folder = save(self._root, self._engine, contents, keep_last=self._keep_last, on_disk=self._on_disk)
            seconds = time.perf_counter() - began
            self._report(SaveReport(iteration, folder, seconds, seconds, False, 0))
        else:
            self._background.start(self._root, contents, keep_last=self._keep_last)
            self._blocked_s[iteration] = time.perf_counter() - began
        self.last = iteration

    def _on_disk(self, folder: Path) -> None:
        self._progress.checkpoint = str(folder)

    def poll(self) -> None:
        """Report the saves that have come to their end."""
        if self._background is None:
            return
        for saved in self._background.finished():
            blocked_s = self._blocked_s.pop(saved.iteration)
            copy_bytes = self._background.bytes
            self._report(SaveReport(saved.iteration, saved.folder, blocked_s, saved.seconds, True, copy_bytes))

    def wait(self) -> None:
        """Wait until every save is on the disk, and report it. Raises CheckpointError if one could not be written."""
        if self._background is not None:
            try:
                self._background.wait()
            finally:
                self.poll()

    def close(self) -> None:
        """Let a save come to its end, whatever that is: the run has ended, and this save is not its reason."""
        if self._background is not None:
            self._background.close()
            self.poll()

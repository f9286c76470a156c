"""The training loop, its logs, validation, and how a run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neoxlite.training.entry import run
    from neoxlite.training.outcome import Outcome

__all__ = ["Outcome", "run"]


def __getattr__(name: str) -> object:
    """Import `run` and `Outcome` on use: the log lines and the outcome are read without torch."""
    if name == "run":
        from neoxlite.training.entry import run

        return run
    if name == "Outcome":
        from neoxlite.training.outcome import Outcome

        return Outcome
    raise AttributeError(name)

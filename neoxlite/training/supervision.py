"""What a run's numbers say while it trains: that it diverges, where it is not finite, which rank holds it up."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from neoxlite.training.divergence import Divergence
from neoxlite.training.metrics import Interval
from neoxlite.training.not_finite import first_not_finite
from neoxlite.training.resumed_loss import RecentLosses
from neoxlite.training.stragglers import Straggler, Stragglers, straggler_line

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig
    from neoxlite.training.engine import Engine
    from neoxlite.training.run_data import RunData

_DIAGNOSES = 3
"""Times that a run looks for what is not finite: each costs a pass over an iteration."""

Record = Callable[..., None]


class Supervision:
    """Follows a run's intervals on every rank, which call its methods together.

    Args:
        iteration: where the run begins.
        losses: the last ones before it, of a checkpoint.
    """

    def __init__(self, cfg: NeoxConfig, engine: Engine, data: RunData, iteration: int, losses: list[float]):
        self._cfg = cfg
        self._engine = engine
        self._data = data
        self._divergence = Divergence(iteration)
        self.losses = RecentLosses(losses, iteration)
        self._stragglers = Stragglers(engine.topology)
        self._hosts = _hosts(engine)
        self._diagnoses = 0
        self._diagnosed = iteration

    @property
    def spoilt(self) -> bool:
        """Whether the weights after the last iteration must not be saved."""
        return self._divergence.spoilt

    def follow(self, measured: Interval, checkpoint: str | None) -> None:
        """Count the iterations of an interval. Raises DivergedError after too many without finite numbers."""
        self.losses.add(measured.iteration, measured.losses)
        self._divergence.add(measured.iteration, measured.losses, measured.grad_norms, measured.skipped)
        self._divergence.check(checkpoint)

    def check_end(self, checkpoint: str | None) -> None:
        """Raise DivergedError if training ends with weights that must not be saved."""
        self._divergence.check(checkpoint, at_end=True)

    def look(self, measured: Interval, say: Callable[[str], None], record: Record) -> None:
        """Name what an interval shows: ``say`` a line, and ``record(event, iteration, **fields)``."""
        self._look_for_stragglers(measured, say, record)
        bad = self._first_bad(measured)
        if bad is not None and self._diagnoses < _DIAGNOSES:
            self._diagnoses += 1
            self._diagnose(bad, measured.iteration, say, record)

    def _look_for_stragglers(self, measured: Interval, say: Callable[[str], None], record: Record) -> None:
        named, recovered = self._stragglers.add(measured.own_s, measured.iteration_s)
        for found in named:
            say(straggler_line(found, self._hosts[found.rank]))
            record("straggler", measured.iteration, **_fields(found, self._hosts[found.rank]))
        for rank in recovered:
            say(f"rank {rank} on {self._hosts[rank]} keeps up with the others again")
            record("straggler_recovered", measured.iteration, rank=rank, host=self._hosts[rank])

    def _first_bad(self, measured: Interval) -> int | None:
        """Return the first iteration of the interval without finite numbers, if the one before it had them."""
        first, found = measured.iteration - len(measured.losses) + 1, None
        for number, (loss, norm) in enumerate(zip(measured.losses, measured.grad_norms, strict=True), first):
            # An fp16 run finds its loss scale by gradients that overflow.
            searching = self._cfg.precision == "fp16" and math.isfinite(loss)
            if math.isfinite(loss + norm) or searching:
                continue
            if found is None and number > self._diagnosed + 1:
                found = number
            self._diagnosed = number
        return found

    def _diagnose(self, bad: int, iteration: int, say: Callable[[str], None], record: Record) -> None:
        found = first_not_finite(self._engine, self._data.batches_again(iteration - bad + 1), bad)
        if found is None:
            text = "run again, it has only finite outputs and gradients: a fault that passes, or of one device"
        else:
            text = f"first not finite: {found.sentence(self._cfg.num_layers)}"
        say(f"WARNING: iteration {bad}: {text}")
        record(
            "not_finite",
            bad,
            kind=found.kind if found else None,
            name=found.name if found else None,
            rank=found.rank if found else None,
        )


def _fields(found: Straggler, host: str) -> dict[str, Any]:
    return {"rank": found.rank, "host": host, "own_ms": found.own_s * 1000, "others_ms": found.others_s * 1000}


def _hosts(engine: Engine) -> list[str]:
    """Return the host of each rank."""
    hosts = [socket.gethostname()] * engine.topology.grid.world_size
    if len(hosts) > 1:
        dist.all_gather_object(hosts, socket.gethostname())
    return hosts

"""Which rank ended first, where no table of torchrun tells it."""

from __future__ import annotations

from hpcjob.logs.events import Finding
from hpcjob.logs.identity import Identity

_RANK_ENDED = "hpcjob-rank"
_SRUN = "srun: error: "


class Ends:
    """Reads what the job's script and srun say of ranks that ended."""

    def __init__(self) -> None:
        self._by_script: int | None = None
        self._by_srun: int | None = None

    @property
    def first(self) -> int | None:
        """The rank that ended first: of our own jobs only that one says so itself, else by srun's first task."""
        return self._by_srun if self._by_script is None else self._by_script

    def read(self, event: Finding, identity: Identity) -> None:
        """Take in an error, and where the rank runs if it tells that."""
        if event.rule == _RANK_ENDED and event.rank is not None and event.host is not None:
            identity.name(event.rank, event.host)
            self._by_script = event.rank if self._by_script is None else self._by_script
        task = event.fields.get("tasks", "")
        if self._by_srun is None and event.text.startswith(_SRUN) and task.isdecimal():
            self._by_srun = int(task)  # srun's prefixes number tasks as well, be they ranks or nodes

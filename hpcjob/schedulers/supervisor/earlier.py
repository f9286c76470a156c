"""Jobs of this machine that have to end before another starts."""

from __future__ import annotations

import json
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hpcjob.schedulers.supervisor.processes import start_ticks

_POLL_S = 0.5


@dataclass
class Earlier:
    """A job of this machine that has to end first: ``ok`` with code 0, ``notok`` with another, ``any`` however."""

    condition: str
    id: str
    jobdir: str

    def refusal(self) -> str | None:
        """Say why the condition cannot come true any more; empty while it may, None once it has."""
        code = self._code()
        if code is None:
            return ""
        good = {"ok": code == 0, "notok": code != 0}.get(self.condition, True)
        cancelled = (self._read(f"{self.id}_local.json") or {}).get("state") == "CANCELLED"
        told = f"ended with code {code}" if code >= 0 else "was cancelled" if cancelled else "ended without a code"
        return None if good else f"after{self.condition}:{self.id} was not satisfied: it {told}"

    def _code(self) -> int | None:
        """Return its exit code, -1 if it ended without one, None while it has not ended."""
        note, record = (self._read(f"{self.id}_{kind}.json") for kind in ("local", "exit"))
        if (
            note is not None
            and note.get("state") is None
            and start_ticks(_number(note, "supervisor")) == note.get("supervisor_start")
        ):
            return None
        found = record or note or {}
        return _number(found, "code", -1)

    def _read(self, name: str) -> dict[str, object] | None:
        try:
            found = json.loads((Path(self.jobdir) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _number(fields: dict[str, object], key: str, default: int = 0) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) else default


def wait_for_all(earlier: list[Earlier], watched: Collection[signal.Signals]) -> str | None:
    """Wait until all conditions are true; return None then, and else why the job will not start."""
    left = list(earlier)
    while True:
        refusals = [one.refusal() for one in left]
        said = next((refusal for refusal in refusals if refusal), None)
        if said is not None:
            return said
        left = [one for one, refusal in zip(left, refusals, strict=True) if refusal is not None]
        if not left:
            return None
        got = signal.sigtimedwait(watched, _POLL_S)
        if got is not None and got.si_signo == signal.SIGTERM:
            return "cancelled while it waited"

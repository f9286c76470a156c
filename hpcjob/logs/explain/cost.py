"""What the end cost: the time of all GPUs since the last checkpoint."""

from __future__ import annotations

import math

from hpcjob.logs.explain.evidence import Evidence

_MS_PER_HOUR = 3.6e6
_S_PER_HOUR = 3600


def gpu_hours(evidence: Evidence) -> float | None:
    """Return the GPU-hours since the last checkpoint, or since the start; None where the log does not tell.

    By the log's own clock, which counts the time that a job hung; in a log without one by the iterations and the time
    of the last, and what the watchdogs waited.
    """
    gpus = evidence.identity.world_size or (max(evidence.seen) + 1 if evidence.seen else 0)
    hours = max(filter(None, (_by_clock(evidence), _by_iterations(evidence))), default=None)
    return None if not gpus or hours is None else round(hours * gpus, 3)


def _by_clock(evidence: Evidence) -> float | None:
    since = evidence.started_s if evidence.saved is None else evidence.saved_s
    if since is None or evidence.ended_s is None or evidence.ended_s <= since:
        return None
    return (evidence.ended_s - since) / _S_PER_HOUR


def _by_iterations(evidence: Evidence) -> float | None:
    last = evidence.last
    if last is None or last.iteration is None or last.iteration_time_ms is None:
        return None
    saved = 0 if evidence.saved is None or evidence.saved.iteration is None else evidence.saved.iteration
    if not math.isfinite(last.iteration_time_ms) or last.iteration < saved:
        return None
    waited_ms = max((wait.waited_ms for wait in evidence.waits.values()), default=0)
    return ((last.iteration - saved) * last.iteration_time_ms + waited_ms) / _MS_PER_HOUR

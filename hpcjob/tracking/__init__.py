"""Track jobs: the index of submissions, exit records, states, and submitit's Job classes for them.

``records``  what is noted    ``index``        where               ``lookup``  a job by what a user calls it
``jobdir``   job folders      ``submission``   once, or not at all ``status``  three witnesses, one state
``exit_record``               what a script leaves                 ``watch``   many states by one question
``submitit_jobs``             submitit's Job and InfoWatcher
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcjob.tracking.lookup import find_job
from hpcjob.tracking.records import Record

if TYPE_CHECKING:
    from hpcjob.tracking.watch import job_ended, refresh

__all__ = ["Record", "find_job", "job_ended", "refresh"]


def __getattr__(name: str) -> Any:
    """Import what asks schedulers only where it is used: the index alone answers many a question."""
    if name in ("job_ended", "refresh"):
        from hpcjob.tracking import watch

        return getattr(watch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

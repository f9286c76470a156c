"""From a scheduler's name to the one that speaks to it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from hpcjob.schedulers.base import Scheduler

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile, SchedulerName

_CLASSES = {
    "slurm": "SlurmScheduler",
    "pbs": "PbsScheduler",
    "gridengine": "GridEngineScheduler",
    "pjm": "PjmScheduler",
    "local": "LocalScheduler",
}


def get_scheduler(profile: ClusterProfile) -> Scheduler:
    """Return the scheduler of ``profile``."""
    return scheduler_of(profile.scheduler.type)


def scheduler_of(type_: SchedulerName) -> Scheduler:
    """Return the scheduler of that type; its module, of the same name, is imported here."""
    module = importlib.import_module(f"hpcjob.schedulers.{type_}")
    return cast("Scheduler", getattr(module, _CLASSES[type_])())

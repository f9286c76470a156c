"""Plans for the tests: made from the shipped profiles and small jobs, the same on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.loading.profiles import load_profile
from hpcjob.plan import Plan
from hpcjob.planning.make import make_plan
from hpcjob.profile import ClusterProfile
from hpcjob.resources import shipped

PROFILES = ("abci3", "abci2", "wisteria", "tsubame", "miyabi", "lab", "local")
LAUNCHERS = ("mpirun", "torchrun", "srun", "pdsh")
INTERPRETER = "/opt/neoxlite/bin/python"


def profile(name: str, **changes: Any) -> ClusterProfile:
    """Return a shipped profile with ``changes`` to its keys, as ``modules={"init": None}``."""
    found, _ = load_profile(str(shipped("cluster_profiles") / f"{name}.yml"))
    changed: ClusterProfile = merged(found, changes)
    return changed


def merged(struct: Any, changes: dict[str, Any]) -> Any:
    """Return ``struct`` with ``changes``; a dictionary changes keys of the struct below."""
    values = {
        key: merged(getattr(struct, key), value) if isinstance(getattr(struct, key), msgspec.Struct) else value
        for key, value in changes.items()
    }
    return msgspec.structs.replace(struct, **values)


def plan(
    where: str | ClusterProfile, *, account: str | None = "gex12345", interpreter: str = INTERPRETER, **job: Any
) -> Plan:
    """Return the plan of a job on a profile; by default a training run on two nodes (one on this machine)."""
    cluster = profile(where) if isinstance(where, str) else where
    keys = {"nodes": 1 if cluster.scheduler.type == "local" else 2, **job}
    if not {"train", "command", "steps"} & keys.keys():
        keys["train"] = {"configs": ["2-7B.yml", "local_setup.yml"], "set": {"train_iters": 100}}
    chosen = msgspec.convert(keys, JobFile)
    return make_plan(
        chosen, cluster, name="gpt-2.7B", interpreter=interpreter, account=account if cluster.name != "local" else None
    )


def pairs() -> list[tuple[str, str]]:
    """Return every profile with every launcher that it does not refuse."""
    found = []
    for name in PROFILES:
        for launcher in LAUNCHERS:
            try:
                plan(name, launcher=launcher)
            except InputError:
                continue
            found.append((name, launcher))
    return found


GOLDEN = Path(__file__).parents[2] / "golden" / "scripts"

"""The profile of a test bed: ``lab``, changed as its comments say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.testbed.modules import init_script

PROFILE = "testbed"


def write_profile(home: Path, changes: Mapping[str, Any] | None = None, name: str = PROFILE) -> str:
    """Write it into the profiles of the user whose home this is; return its name."""
    profile: dict[str, Any] = {
        "extends": "lab",
        "name": name,
        "title": "two virtual nodes",
        "node": {"gpus": 0},
        "modules": {"init": init_script()},
        # Open MPI wants to be told that root is meant; the test bed has no other user.
        "env": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"},
        "paths": {"not_shared": ["/tmp"]},
        "limits": {"default_walltime": "10:00"},
    }
    profile.update(changes or {})
    path = home / ".config" / "hpcjob" / "cluster_profiles" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(profile, sort_keys=False))
    return name

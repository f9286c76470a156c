"""Job files, profiles and settings of a test, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli.options import plans_from_options
from hpcjob.errors import InputError
from hpcjob.plan import Plan

PROFILE = "schema: 1\nname: {name}\ntitle: a cluster\nscheduler: {{type: slurm}}\nnode: {{gpus: 4, cores: 64}}\n"


def write(path: Path, text: str) -> Path:
    """Write a file and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def own_profile(place: Path, name: str, text: str | None = None) -> Path:
    """Write a profile into the user's folder."""
    return write(place.parent / "config/hpcjob/cluster_profiles" / f"{name}.yml", text or PROFILE.format(name=name))


def settings(place: Path, text: str) -> Path:
    """Write the user's settings."""
    return write(place.parent / "config/hpcjob/config.yml", text)


def plan_of(**options: Any) -> Plan:
    """Return the plan of the given options."""
    return plans_from_options(**options)[0]


def refusal(**options: Any) -> str:
    """Return message and hint with which the options are refused."""
    with pytest.raises(InputError) as error:
        plans_from_options(**options)
    assert error.value.exit_code == 2
    return str(error.value)

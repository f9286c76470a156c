"""What commands call jobs by, and so what no job may be called."""

from __future__ import annotations

from hpcjob.errors import InputError

LATEST = "latest"
"""The newest job."""


def check_name(name: str) -> None:
    """Raise InputError for a name by which no command would find its job."""
    if name == LATEST:
        raise InputError(f"name: {name!r} is the newest job to every command", hint="give another name: --name NAME")

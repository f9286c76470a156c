"""Whether a scheduler has given several nodes to the job around this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_COUNTS: Final = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "NHOSTS")
_FILES: Final = ("PBS_NODEFILE", "PE_HOSTFILE", "PJM_O_NODEINF")
"""Of PBS, Grid Engine and PJM. The first word of a line is a host, which may stand there once a slot."""


def several_nodes(environ: Mapping[str, str]) -> str | None:
    """Tell by which variable of Slurm, PBS, Grid Engine or PJM the job has several nodes, or may; None: it has one."""
    for name in _COUNTS:
        count = environ.get(name, "")
        if count.isdecimal() and int(count) > 1:
            return f"{name} is {count}"
    for name in _FILES:
        path = environ.get(name)
        if not path:
            continue
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return f"{name}, {path}, cannot be read: {error.strerror}"
        hosts = {line.split()[0] for line in lines if line.strip()}
        if len(hosts) > 1:
            return f"{name} has {len(hosts)} hosts"
    return None

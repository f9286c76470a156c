"""Whether the hosts of a run can be reached and see its folder: told before it starts, where it would wait for ever."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from neoxlite.errors import NeoxliteError

_TIMEOUT_S = 60


def check_hosts(names: Sequence[str], folder: Path) -> None:
    """Look from each host, by pdsh and ssh, for the folder of a run.

    Raises:
        NeoxliteError: there is no pdsh, a host cannot be reached, or does not see the folder; each is named.
    """
    look = f"test -d {shlex.quote(str(folder))} || echo no folder"
    command = ["pdsh", "-S", "-R", "ssh", "-f", str(len(names)), "-w", ",".join(names), look.replace("%", "%%")]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise NeoxliteError(
            "there is no pdsh on PATH, which reaches the other hosts",
            hint="install pdsh, or set launcher: openmpi where there is Open MPI",
        ) from None
    except subprocess.TimeoutExpired:
        raise NeoxliteError(
            f"{', '.join(names)}: not all have answered in {_TIMEOUT_S} s",
            hint="try ssh to each of them; no_ssh_check: true starts without this check",
        ) from None
    without = {line.partition(":")[0] for line in done.stdout.splitlines() if line.endswith("no folder")}
    blind = [name for name in names if name in without]  # they answer in any order
    if blind:
        raise NeoxliteError(
            f"{', '.join(blind)}: there is no {folder} there, the folder of this run",
            hint="start from a folder that all hosts share",
        )
    if done.returncode:
        told = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = told[0] if told else f"pdsh ended with {done.returncode}"
        raise NeoxliteError(
            f"not all of {', '.join(names)} can be reached: {reason}",
            hint="ssh to each of them must work without a password",
        )

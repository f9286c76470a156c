"""Commands that fail at random, in front of the real or emulated ones: the same failures for the same seed."""

from __future__ import annotations

import contextlib
import math
import random
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

KINDS = ("fail", "hang", "garbage", "empty", "cut")
_HANG_S = 600
_LOOK_S = 0.02
# What the submit command says when the job may be queued all the same (see the tests of each scheduler).
LOST_ANSWERS = {
    "sbatch": "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "qsub": "Unable to run job: failed receiving gdi request response for mid=1 (got no message). qsub: End of File",
    "pjsub": "[ERR.] PJM 9000 pjsub Communication with the job operation server timed out.",
}
_GARBAGE = "\\377\\376<html>\\n123\\nH,\\000,|RUNNING|COMPLETED\\nJob Id: 1\\n    job_state = \\n"

# Each call takes the next line of the plan. A submission that is told to have failed has been made all the same, but
# for `fail`, which comes before it.
_SHIM = """\
#!/bin/bash
exec 9<>{folder}/count.lock
flock 9
read -r number <{folder}/count
echo $((number + 1)) >{folder}/count
flock -u 9
exec 9>&-
is_submit={is_submit}
kind=$(sed -n "$((number + 1))p" {folder}/plan)
real() {{ {real} "$@"; }}
submitted() {{ [[ $is_submit ]] || return 0; real "$@" >/dev/null 2>&1 || :; }}
case $kind in
  fail) echo 'temporarily out of order' >&2 && exit 1 ;;
  hang) submitted "$@"; exec sleep {hang_s} ;;
  garbage) submitted "$@"; printf '{garbage}'; exit 0 ;;
  empty) submitted "$@"; exit 0 ;;
  cut)
    submitted "$@"
    [[ ! $is_submit ]] || {{ echo {lost} >&2; exit 1; }}
    said=$(real "$@")
    code=$?
    printf '%s' "${{said:0:$((${{#said}} * (number % 7) / 7))}}"
    exit $code ;;
esac
real "$@"
"""


def put_faults(folder: Path, commands: tuple[str, ...], *, seed: int, share: float = 0.3, calls: int = 20_000) -> Path:
    """Write shims for ``commands``, which must be on PATH now; return the folder to be put before them."""
    choose = random.Random(seed)
    plan = (choose.choice(KINDS) if choose.random() < share else "ok" for _ in range(calls))
    bin_ = folder / "faulty"
    bin_.mkdir(parents=True)
    (folder / "plan").write_text("".join(f"{kind}\n" for kind in plan))
    (folder / "count.lock").touch()
    stop(folder)
    for name in commands:
        real = shutil.which(name)
        assert real is not None, name
        words = {
            "folder": shlex.quote(str(folder)),
            "real": shlex.quote(real),
            "is_submit": "1" if name in LOST_ANSWERS else "",
            "lost": shlex.quote(LOST_ANSWERS.get(name, "")),
            "garbage": _GARBAGE,
            "hang_s": _HANG_S,
        }
        (bin_ / name).write_text(_SHIM.format(**words))
        (bin_ / name).chmod(0o755)
    return bin_


class Impatient(subprocess.Popen[bytes]):
    """In the place of ``subprocess.Popen``: a time limit has passed as soon as the command hangs, and not before.

    So a hang costs no time, and a command that is slow because the machine is busy is not taken for one.
    """

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        """See ``subprocess.Popen.communicate``; these commands take no input."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while (answer := self._answer()) is None:
            if self._hangs() or time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or _LOOK_S)
        return answer

    def _answer(self) -> tuple[Any, Any] | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return super().communicate(None, _LOOK_S)
        return None

    def _hangs(self) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/comm").read_text() == "sleep\n"
        return False


def start(folder: Path) -> None:
    """Begin with the failures."""
    (folder / "count").write_text("0\n")


def stop(folder: Path) -> None:
    """Let every command do what it does."""
    (folder / "count").write_text("1000000\n")

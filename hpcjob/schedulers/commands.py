"""Child commands of schedulers: bounded in time, in a clean environment, their words kept."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcjob.errors import SchedulerError
from neoxlite.common.printable import tell

PATIENCE_S = 5.0
"""After so long without an answer a command is said to be waited for."""

_INHERITED = re.compile(
    r"(?:SBATCH|SQUEUE|SACCT|SCANCEL|SINFO|SALLOC|SRUN|SLURM|PBS|SGE|PJM|HPCJOB_ARRAY)_|HPCJOB_PROCESS$"
)
# Which cluster to talk to, and how to prove who asks; a site may set them for every login.
_KEPT = {
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_KEY", "SLURM_SACK_SOCKET"),
    *("PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_SERVER", "PBS_DEFAULT"),
    *("SGE_ROOT", "SGE_CELL", "SGE_ARCH", "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
}


class CommandMissingError(SchedulerError):
    """The command is not on PATH or cannot be executed."""


class CommandTimeoutError(SchedulerError):
    """The command did not end in time and was killed."""


@dataclass(frozen=True)
class Finished:
    """A command that ended.

    Attributes:
        argv: what was run.
        code: exit code; negative: the signal that killed it.
        stdout, stderr: decoded as UTF-8, broken bytes replaced.
    """

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """What it printed, errors first, in one line of bounded length, without its own name before each part."""
        own = re.compile(rf"{re.escape(Path(self.argv[0]).name)}: (?:(?:error|fatal): )?")
        printed = (self.stderr.strip() or self.stdout.strip()).splitlines()
        lines = [own.sub("", line.strip(), count=1) for line in printed if line.strip()]
        text = "; ".join(dict.fromkeys(lines)) or f"exit code {self.code} without a message"
        return text if len(text) <= 600 else f"{text[:300]} ... {text[-290:]}"


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without what schedulers set inside a job or read as options; which cluster to ask stays.

    A job that submits another must not hand down its own layout, nor the mark by which it ends its processes; and
    ``SQUEUE_FORMAT`` must not change what is parsed.
    """
    return {key: value for key, value in environment.items() if key in _KEPT or not _INHERITED.match(key)}


def user_name() -> str:
    """Return the name of who runs this, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without an entry for the user
        return str(os.getuid())


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    translate: bool = False,
    name: str | None = None,
) -> Finished:
    """Run ``argv`` and return how it ended. Who waits for it at a terminal is told so after some seconds.

    Args:
        timeout_s: wall-clock limit; the command and its children are killed then.
        translate: keep the user's locale, for a command whose environment goes on to the job.
        name: what it is called where it does not answer; default: its first word.

    Raises:
        CommandMissingError: there is no such command.
        CommandTimeoutError: the limit passed.
    """
    environment = clean_environment(os.environ)
    if not translate:
        environment["LC_ALL"] = "C"
    with _started(argv, cwd, environment) as child:
        try:
            out, err = _output(child, name or argv[0], timeout_s)
        except subprocess.TimeoutExpired:
            _kill(child)
            raise CommandTimeoutError(
                f"{name or argv[0]}: no answer in {timeout_s:g} s",
                hint="the scheduler may be busy; try again in a minute",
            ) from None
        except BaseException:
            _kill(child)
            raise
    return Finished(tuple(argv), child.returncode, _text(out), _text(err))


def _started(argv: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command. Raises SchedulerError: there is no such command, or no folder to start it in."""
    try:
        # A session of its own: its children end with it, and Ctrl-C does not tear a submission in the middle.
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if cwd is not None and error.filename == str(cwd):
            raise SchedulerError(f"{cwd}: no such folder", hint="submit from a folder that exists") from None
        raise CommandMissingError(
            f"{argv[0]}: no such command on PATH",
            hint="run this on a login node of that cluster, or choose another profile",
        ) from None
    except OSError as error:
        raise CommandMissingError(f"{argv[0]}: {error.strerror}", hint="check that you may execute it") from None


def _output(child: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[bytes, bytes]:
    """Return what ``child`` prints until it ends. Raises TimeoutExpired after ``timeout_s``."""
    if timeout_s <= PATIENCE_S:
        return child.communicate(timeout=timeout_s)
    try:
        return child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        _say_waiting(name, timeout_s)
    return child.communicate(timeout=timeout_s - PATIENCE_S)


@functools.cache  # once: who polls a scheduler that hangs need not read it again
def _say_waiting(name: str, timeout_s: float) -> None:
    if sys.stderr is not None and sys.stderr.isatty():  # None: a program without one imports this
        tell(f"{name} has not answered for {PATIENCE_S:g} s; waiting, at most {timeout_s:g} s")


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    # A grandchild in a session of its own may hold the pipes open; it must not hold us.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=1)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")

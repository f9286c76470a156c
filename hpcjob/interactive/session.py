"""One shell: what it asks, the command that starts it, and its folder."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.errors import HpcjobError, InputError
from hpcjob.profile import Queue, SchedulerName, Size
from hpcjob.render import render_with_notes
from hpcjob.schedulers.base import ShellRequest
from hpcjob.schedulers.commands import clean_environment
from hpcjob.schedulers.registry import get_scheduler
from hpcjob.tracking import jobdir
from hpcjob.tracking.submission import check_site
from hpcjob.units import parse_walltime_s

if TYPE_CHECKING:
    from hpcjob.job import JobFile
    from hpcjob.plan import Plan
    from hpcjob.profile import ClusterProfile

_PREFIXES: dict[SchedulerName, str] = {"slurm": "#SBATCH ", "pbs": "#PBS ", "gridengine": "#$ ", "pjm": "#PJM "}
_NOT_OF_A_SHELL = ("array", "after", "sweep")


@dataclass(frozen=True)
class Session:
    """A shell that is ready to be started.

    Attributes:
        plan: the shape that is asked.
        script: text of the program that is the shell: a job's checks and environment, then bash.
        folder: its folder, not made yet. command: what starts it, in this terminal.
        notes: what the user should know.
    """

    plan: Plan
    script: str
    folder: Path
    command: list[str]
    notes: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command as a line for a shell."""
        return shlex.join(self.command)

    def check(self) -> None:
        """Refuse what is known to fail.

        Raises:
            InputError: an account is missing, or compute nodes do not see the folder.
        """
        check_site(self.plan, Path.cwd(), self.folder, "a shell")

    def write(self) -> None:
        """Make the folder, with the shell in it. Raises HpcjobError where that cannot be written."""
        jobdir.create(self.folder)
        jobdir.fill(self.folder, self.plan, self.script)

    def run(self) -> int:
        """Run the command in this terminal to its end and return its exit code; refused, it leaves no folder.

        Raises:
            HpcjobError: there is no such command.
        """
        ours = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the shell
        try:
            done = subprocess.run(
                self.command,
                env=clean_environment(os.environ),
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                check=False,
            )
        except OSError as error:
            raise HpcjobError(
                f"{self.command[0]}: {error.strerror}",
                hint="run this on a login node of that cluster, or choose another profile",
            ) from None
        finally:
            signal.signal(signal.SIGINT, ours)
            if jobdir.started_id(self.folder) is None:
                jobdir.remove(self.folder)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode


def prepare(plan: Plan) -> Session:
    """Return the shell that has what ``plan``'s job would have.

    Raises:
        InputError: a value fits neither shell nor scheduler.
    """
    folder = jobdir.new_path(plan, Path.cwd())
    rendered = render_with_notes(plan, jobdir=str(folder), interactive=True)
    scheduler = plan.profile.scheduler
    request = ShellRequest(
        options=tuple(_options(rendered.script, scheduler.type)),
        shell=folder / "script.sh",
        command=tuple(plan.profile.interactive.command),
        group=plan.account if scheduler.account == "-g-cli" else None,
    )
    command = get_scheduler(plan.profile).shell_command(request)
    return Session(plan, rendered.script, folder, command, rendered.notes)


def _options(script: str, scheduler: SchedulerName) -> Iterator[tuple[str, ...]]:
    """Yield the words of each directive of ``script``: what a job asks, a shell asks by options of the same names."""
    prefix = _PREFIXES.get(scheduler)
    for line in script.splitlines():
        if not line.startswith("#"):
            return
        if prefix and line.startswith(prefix):
            yield tuple(shlex.split(line.removeprefix(prefix)))


def adapt(job: JobFile, profile: ClusterProfile) -> tuple[JobFile, ClusterProfile]:
    """Return job and profile of a shell: in the profile's queue for shells, within its limits.

    Raises:
        InputError: the site gives no shells (with its reason), or the job is one that cannot be a shell.
    """
    ways = profile.interactive
    if ways.refused:
        raise InputError(
            f"{profile.name} gives no interactive shells: {ways.refused}", hint="submit a job: hpcjob submit"
        )
    for key in _NOT_OF_A_SHELL:
        if getattr(job, key) is not None:
            raise InputError(f"{key}: a shell has none", hint=f"omit it: --set {key}=null")
    if job.queue is None and ways.queue:
        job = msgspec.structs.replace(job, queue=ways.queue)
    if not ways.sizes and ways.node_hours is None:
        return job, profile
    names = [*profile.queues, *(name for name in (job.queue, profile.scheduler.resource) if name)]
    queues = {name: _within(profile.queues.get(name, Queue()), profile) for name in names}
    return job, msgspec.structs.replace(profile, queues=queues)


def _within(queue: Queue, profile: ClusterProfile) -> Queue:
    """Return ``queue`` with the limits of shells on top of its own."""
    ways = profile.interactive
    sizes = _smaller(queue.sizes, ways.sizes) if queue.sizes and ways.sizes else queue.sizes or ways.sizes
    hours = [value for value in (queue.node_hours, ways.node_hours) if value is not None]
    return msgspec.structs.replace(queue, sizes=sizes, node_hours=min(hours, default=None))


def _smaller(one: list[Size], other: list[Size]) -> list[Size]:
    """Return what both tables of limits allow."""
    steps = sorted({size.nodes for size in (*one, *other)})
    both = []
    for nodes in steps:
        limits = [next((size.walltime for size in table if nodes <= size.nodes), None) for table in (one, other)]
        found = [limit for limit in limits if limit is not None]
        if len(found) == len(limits):
            both.append(Size(nodes=nodes, walltime=min(found, key=parse_walltime_s)))
    return both

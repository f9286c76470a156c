"""A job and a profile brought together: every decision that a script needs, made and checked by `hpcjob.planning`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hpcjob.after import Dependency
from hpcjob.arrays import Array
from hpcjob.documents.places import Places
from hpcjob.job import JobFile, LauncherName, Python
from hpcjob.profile import ClusterProfile
from hpcjob.source import Source


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step, ready to be rendered.

    Attributes:
        name: for the log and the exit record.
        argv: the command of one rank; ``python`` as its first word is the step's interpreter.
        launcher: ``none``: started once on the first node; else started as all ranks by that launcher.
        env: variables of this step alone.
        python: environment of this step.
        is_train: whether it is a neoxlite run, whose outcome file decides the exit code.
    """

    name: str
    argv: tuple[str, ...]
    launcher: LauncherName
    env: Mapping[str, str]
    python: Python
    is_train: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a job script says. Two equal plans render to the same bytes.

    Attributes:
        name: full name of the job (schedulers may get a shortened one).
        profile: the cluster, with the node and the limits of the job's queue in place.
        nodes, gpus_per_node, procs_per_node: the topology; ``procs_per_node`` ranks are started on each node.
        cpus_per_proc: CPU cores of one rank, or None where nothing is asked.
        memory_gib: memory of one node, or None.
        walltime_s, stop_before_s: limit (0: none), and how long before it the trainer is asked to save (0: never).
        queue, account: as given to the scheduler, or None.
        modules, module_use, source: what is loaded, in order.
        env: variables of all ranks: the profile's under the job's.
        steps: the work.
        array: the elements, of an array.
        after: jobs that have to end first.
        notes: what the user should know; each becomes a comment in the script and a line on stderr.
        hosts: the nodes, where no scheduler gives them; empty: the scheduler's, or this machine.
        master_addr, master_port: where rank 0 listens; None: on the first node, at a port of this job's own.
        job_source, profile_source: the files behind it.
        places: where each value of the job was given, for errors.
    """

    name: str
    job: JobFile
    profile: ClusterProfile
    nodes: int
    gpus_per_node: int
    procs_per_node: int
    cpus_per_proc: int | None
    memory_gib: float | None
    walltime_s: int
    stop_before_s: int
    queue: str | None
    account: str | None
    modules: tuple[str, ...]
    module_use: tuple[str, ...]
    env: Mapping[str, str]
    steps: tuple[PlannedStep, ...]
    notes: tuple[str, ...]
    array: Array | None = None
    after: tuple[Dependency, ...] = ()
    hosts: tuple[str, ...] = ()
    master_addr: str | None = None
    master_port: int | None = None
    job_source: Source | None = None
    profile_source: Source | None = None
    places: Places = {}

    @property
    def world_size(self) -> int:
        """Number of ranks of a launched step."""
        return self.nodes * self.procs_per_node

    @property
    def launchers(self) -> tuple[LauncherName, ...]:
        """The launchers that its steps use, each once, in order."""
        return tuple(dict.fromkeys(step.launcher for step in self.steps))

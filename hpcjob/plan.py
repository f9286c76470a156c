"""A job and a profile brought together: every decision that a script needs, made once and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpcjob.after import Dependency
from hpcjob.arrays import Array, array_of
from hpcjob.elements import in_yaml
from hpcjob.errors import InputError
from hpcjob.job import JobFile, LauncherName, Python, Step, Train
from hpcjob.profile import ClusterProfile
from hpcjob.queues import AUTO, choose
from hpcjob.units import format_clock, parse_memory_gib, parse_walltime_s

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a plan was made from.

    Attributes:
        label: the file as a script names it, the same on every machine: the path as given, or
            ``hpcjob:cluster_profiles/abci3.yml`` if shipped.
        sha256: hexadecimal digest of its bytes, and of those of the files that it extends, in that order.
        path: the file itself.
    """

    label: str
    sha256: str
    path: Path


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

    @property
    def world_size(self) -> int:
        """Number of ranks of a launched step."""
        return self.nodes * self.procs_per_node

    @property
    def launchers(self) -> tuple[LauncherName, ...]:
        """The launchers that its steps use, each once, in order."""
        return tuple(dict.fromkeys(step.launcher for step in self.steps))


def make_plan(
    job: JobFile,
    profile: ClusterProfile,
    *,
    name: str,
    interpreter: str,
    account: str | None = None,
    after: Iterable[Dependency] = (),
    notes: Iterable[str] = (),
    job_source: Source | None = None,
    profile_source: Source | None = None,
) -> Plan:
    """Decide everything about ``job`` on ``profile``.

    Args:
        name: name of the job where the file gives none.
        interpreter: absolute path of the Python used where the job names none.
        account: group account, after option, job file and configuration were looked at.
        after: the jobs that ``job.after`` names, found.
        notes: what was noticed on the way here.

    Raises:
        InputError: the job does not fit the cluster; the message names the key and the alternatives.
    """
    array = array_of(job)
    queue, chosen = _queue(job, profile)
    profile, told = _at_queue(profile, queue, job.nodes)
    told = [*chosen, *told]
    trains = job.kind == "train"
    gpus = (profile.node.gpus if job.gpus_per_node is None else job.gpus_per_node) if trains else 0
    if gpus > profile.node.gpus:
        raise InputError(
            f"gpus_per_node: {gpus} asked, a node of {_where(profile, queue)} has {profile.node.gpus}",
            hint=f"ask for at most {profile.node.gpus}, or for more nodes" if profile.node.gpus else "ask for none",
        )
    procs = (job.procs_per_node or gpus or 1) if trains else 1
    walltime_s = _walltime_s(job, profile, queue)
    held = gpus if _gives_gpus_by_number(job, profile) else profile.node.gpus
    if trains and procs < held:
        told.append(f"{_count(procs, 'rank')} on each node of {_count(held, 'GPU')}: the others stay idle")
    if not account and (profile.scheduler.account_required or profile.scheduler.account not in ("none", "--account")):
        told.append(_no_account(profile))
    return Plan(
        name=job.name or name,
        job=job,
        profile=profile,
        nodes=job.nodes,
        gpus_per_node=gpus,
        procs_per_node=procs,
        cpus_per_proc=job.cpus_per_gpu,
        memory_gib=None if job.memory is None else parse_memory_gib(job.memory),
        walltime_s=walltime_s,
        stop_before_s=min(job.stop_before_s, walltime_s // 4),
        queue=queue,
        account=account,
        modules=tuple(profile.modules.load if job.modules is None else job.modules),
        module_use=(*profile.modules.use, *job.module_use),
        env={**profile.env, **job.env},
        steps=_steps(job, profile, interpreter, array),
        notes=(*notes, *told),
        array=array,
        after=tuple(after),
        job_source=job_source,
        profile_source=profile_source,
    )


def _gives_gpus_by_number(job: JobFile, profile: ClusterProfile) -> bool:
    """Return whether a job holds the GPUs that it asks for, and not all of its nodes."""
    scheduler = profile.scheduler
    if scheduler.type == "slurm":
        return scheduler.gpu_request != "none" and not job.exclusive
    return scheduler.type == "pbs" and "{gpus}" in scheduler.select and not job.exclusive


def _queue(job: JobFile, profile: ClusterProfile) -> tuple[str | None, list[str]]:
    """Return the queue of ``job``, and how it was chosen if it was."""
    if job.queue == AUTO:
        return choose(job, profile)
    of_kind = profile.scheduler.cpu_resource if job.kind != "train" else None
    return job.queue or of_kind or profile.scheduler.resource, []


def _at_queue(profile: ClusterProfile, queue: str | None, nodes: int) -> tuple[ClusterProfile, list[str]]:
    """Return ``profile`` with the node and the limits of ``queue``, and notes.

    A queue that is not listed is not refused: it may be a reservation or belong to a group.
    """
    limits = profile.limits
    known = profile.queues.get(queue or "")
    if known is None and profile.queues and queue:
        near = difflib.get_close_matches(queue, profile.queues, n=3, cutoff=0.5)
        told = f"queue {queue} is not among those known of {profile.name}, its limits are not checked"
        told += f" (near: {', '.join(near)})" if near else ""
        free = msgspec.structs.replace(limits, nodes=None, walltime=None, node_hours=None)
        return msgspec.structs.replace(profile, limits=free), [told]
    if known and known.sizes:
        most = known.sizes[-1].nodes
        walltime = next((size.walltime for size in known.sizes if nodes <= size.nodes), known.sizes[-1].walltime)
        limits = msgspec.structs.replace(limits, nodes=most, walltime=walltime)
    if known and known.node_hours:
        limits = msgspec.structs.replace(limits, node_hours=known.node_hours)
    _check_nodes(nodes, limits.nodes, _where(profile, queue))
    node = known.node if known and known.node else profile.node
    return msgspec.structs.replace(profile, limits=limits, node=node), []


def _where(profile: ClusterProfile, queue: str | None) -> str:
    return f"{profile.name} ({queue})" if queue else profile.name


def _no_account(profile: ClusterProfile) -> str:
    need = (
        "refuses a submission without one"
        if profile.scheduler.account_required
        else "may run it as a trial or charge your default group"
    )
    return f"no account given; {profile.name} {need} (--account, `account:` or HPCJOB_ACCOUNT)"


def _walltime_s(job: JobFile, profile: ClusterProfile, queue: str | None) -> int:
    longest, node_hours = profile.limits.walltime, profile.limits.node_hours
    longest_s = parse_walltime_s(longest, "limits.walltime") if longest else None
    if node_hours and (not longest_s or node_hours * 3600 < longest_s * job.nodes):
        longest_s = int(node_hours * 3600 // job.nodes)
        longest = f"{format_clock(longest_s)}, of {node_hours:g} node-hours"
    if job.walltime is None:
        default_s = parse_walltime_s(profile.limits.default_walltime, "limits.default_walltime")
        return min(default_s, longest_s or default_s)
    walltime_s = parse_walltime_s(job.walltime)
    if longest_s and walltime_s > longest_s:
        raise InputError(
            f"walltime: {format_clock(walltime_s)} is longer than {_where(profile, queue)} allows for "
            f"{_count(job.nodes, 'node')} ({longest})",
            hint="ask for less and resume from the checkpoint (`stop_before_s` saves in time)",
        )
    return walltime_s


def _check_nodes(nodes: int, most: int | None, where: str) -> None:
    if most and nodes > most:
        raise InputError(
            f"nodes: {nodes} asked, {where} allows {most} per job", hint=f"ask for at most {_count(most, 'node')}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _steps(job: JobFile, profile: ClusterProfile, interpreter: str, array: Array | None) -> tuple[PlannedStep, ...]:
    works = [key for key in ("train", "command", "steps") if getattr(job, key)]
    if len(works) != 1:
        found = " and ".join(works) or "none of them"
        raise InputError(
            f"a job does one of `train`, `command`, `steps`; this one has {found}", hint="give exactly one"
        )
    default: LauncherName = (job.launcher or profile.launcher.default) if job.kind == "train" else "none"
    whole = job.steps or [Step(name="train" if job.train else "command", command=job.command, train=job.train)]
    planned = []
    for step in whole:
        if (step.command is None) == (step.train is None):
            raise InputError(f"step {step.name!r} needs one of `command` and `train`", hint="give exactly one")
        once = job.steps is not None and step.train is None
        launcher = step.launcher or ("none" if once else default)
        check_launcher(launcher, job, profile)
        python = step.python or job.python or Python(executable=interpreter)
        _check_pyxis(launcher, python, job, profile)
        planned.append(
            PlannedStep(
                name=step.name,
                argv=tuple(step.command) if step.command else _train_argv(step.train or Train(configs=["?"]), array),
                launcher=launcher,
                env=step.env,
                python=python,
                is_train=step.train is not None,
            )
        )
    return tuple(planned)


def _train_argv(train: Train, array: Array | None) -> tuple[str, ...]:
    argv = ["python", "-m", "neoxlite", "train"]
    if train.conf_dir:
        argv += ["-d", train.conf_dir]
    for key, value in leaves(train.set):
        argv += ["--set", f"{key}={in_yaml(value, array, f'train.set.{key}') or _yaml_text(value)}"]
    return (*argv, "--", *train.configs)


def leaves(values: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted key and value of what stands in nested mappings: ``optimizer.params.lr``."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _yaml_text(value: Any) -> str:
    """Return ``value`` as one line that YAML 1.1 and 1.2 read alike; JSON's ``6e-05`` would be text in YAML 1.1."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_yaml_text(key)}: {_yaml_text(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text: str = yaml.dump(value, Dumper=_DUMPER)
    return text.removesuffix("\n").removesuffix("\n...")


def check_launcher(launcher: LauncherName, job: JobFile, profile: ClusterProfile) -> None:
    """Refuse a launcher that cannot work on this cluster.

    Raises:
        InputError: with the reason and the launchers that do work.
    """
    reason = _refusal(launcher, job, profile)
    if reason:
        every: tuple[LauncherName, ...] = ("mpirun", "torchrun", "srun", "pdsh")
        works = [other for other in every if not _refusal(other, job, profile)]
        raise InputError(f"launcher: {launcher} on {profile.name}: {reason}", hint=f"use {' or '.join(works)}")


def uses_pyxis(profile: ClusterProfile) -> bool:
    """Whether containers are started by srun here."""
    return profile.scheduler.type == "slurm" and profile.scheduler.pyxis


def _check_pyxis(launcher: LauncherName, python: Python, job: JobFile, profile: ClusterProfile) -> None:
    """Refuse what pyxis cannot start: srun alone puts ranks into an image, the same for all launched steps."""
    if not uses_pyxis(profile) or launcher == "none" or (python.container is None and job.python is None):
        return
    own = job.python.container if job.python else None
    if python.container != own:
        raise InputError(
            "steps: with pyxis all launched steps run in the job's own python.container",
            hint="name the container in the job, not in a step; other images in jobs of their own (--chain)",
        )
    if own is None:
        return
    if launcher in ("mpirun", "pdsh"):
        raise InputError(
            f"launcher: {launcher} with python.container on {profile.name}: pyxis starts images by srun",
            hint="use srun or torchrun, or --set profile.scheduler.pyxis=false for apptainer",
        )
    for bind in own.binds:
        if "," in bind:
            raise InputError(f"python.container.binds: {bind!r}: pyxis takes no comma", hint="bind a folder above it")


def _refusal(launcher: LauncherName, job: JobFile, profile: ClusterProfile) -> str | None:
    scheduler = profile.scheduler.type
    if scheduler == "local" and job.nodes > 1:
        return "this machine is one node"
    if launcher == "srun" and scheduler != "slurm":
        return f"srun is part of Slurm, this cluster runs {scheduler}"
    if launcher == "pdsh" and scheduler == "local":
        return "pdsh reaches other nodes, this machine is one"
    if launcher == "pdsh" and profile.ssh.access == "none":
        return "its compute nodes allow no ssh between them"
    if launcher == "mpirun" and not profile.launcher.mpi:
        return "it has no Open MPI"
    if launcher == "torchrun" and scheduler not in ("slurm", "local") and not profile.launcher.mpi:
        return "one agent per node is started by mpirun here, and it has no Open MPI"
    return None

"""The plan of a job on a profile."""

from __future__ import annotations

from collections.abc import Iterable

from hpcjob.after import Dependency
from hpcjob.arrays import array_of
from hpcjob.documents.places import Places
from hpcjob.job import JobFile
from hpcjob.naming import check_name
from hpcjob.plan import Plan
from hpcjob.planning.limits import at_queue, queue_of, short_walltime, walltime_s, where
from hpcjob.planning.steps import planned_steps
from hpcjob.planning.topology import check_gpus, check_ranks, cpus_per_proc, gpus_per_node, idle_gpus, procs_per_node
from hpcjob.profile import ClusterProfile
from hpcjob.schedulers.directives import about_name
from hpcjob.source import Source
from hpcjob.units import parse_memory_gib

_PART_TO_SAVE = 4  # of the walltime at most one part of so many is kept for saving


def make_plan(
    job: JobFile,
    profile: ClusterProfile,
    *,
    name: str,
    interpreter: str,
    account: str | None = None,
    after: Iterable[Dependency] = (),
    notes: Iterable[str] = (),
    places: Places | None = None,
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
        places: where each value of the job was given.

    Raises:
        InputError: the job does not fit the cluster; the message names the key and the alternatives.
    """
    check_name(job.name or name)
    array = array_of(job)
    queue, chosen = queue_of(job, profile)
    profile, about_queue = at_queue(profile, queue, job.nodes)
    gpus = gpus_per_node(job, profile)
    procs = procs_per_node(job, gpus)
    check_gpus(gpus, profile, where(profile, queue))
    check_ranks(job, procs, gpus, where(profile, queue))
    limit_s = walltime_s(job, profile, queue)
    about_shape = [*idle_gpus(job, profile, procs, gpus), *short_walltime(job, limit_s)]
    named = about_name(profile.scheduler.type, job.name or name)
    told = [*notes, *named, *chosen, *about_queue, *about_shape, *_closed(profile), *_missing_account(profile, account)]
    return Plan(
        name=job.name or name,
        job=job,
        profile=profile,
        nodes=job.nodes,
        gpus_per_node=gpus,
        procs_per_node=procs,
        cpus_per_proc=cpus_per_proc(job, profile, procs, gpus),
        memory_gib=None if job.memory is None else parse_memory_gib(job.memory),
        walltime_s=limit_s,
        stop_before_s=min(job.stop_before_s, limit_s // _PART_TO_SAVE),
        queue=queue,
        account=account,
        modules=tuple(profile.modules.load if job.modules is None else job.modules),
        module_use=(*profile.modules.use, *job.module_use),
        env={**profile.env, **job.env},
        steps=planned_steps(job, profile, interpreter, array),
        notes=tuple(told),
        array=array,
        after=tuple(after),
        job_source=job_source,
        profile_source=profile_source,
        places=places or {},
    )


def _closed(profile: ClusterProfile) -> Iterable[str]:
    """Yield a note where the system is out of service: its profile is kept for others of its kind."""
    if profile.status == "closed":
        yield f"{profile.name}: this system is out of service (status: closed)"


def _missing_account(profile: ClusterProfile, account: str | None) -> Iterable[str]:
    """Yield a note where a cluster takes an account and none is given."""
    scheduler = profile.scheduler
    if account or (not scheduler.account_required and scheduler.account in ("none", "--account")):
        return
    if scheduler.account_required:
        need = "refuses a submission without one"
    else:
        need = "may run it as a trial or charge your default group"
    yield f"no account given; {profile.name} {need} (--account, `account:` or HPCJOB_ACCOUNT)"

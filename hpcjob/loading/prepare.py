"""Job file, profile, options and settings brought together: a plan for each job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import msgspec

from hpcjob.after import Dependency
from hpcjob.arrays import with_lines
from hpcjob.documents.document import Document
from hpcjob.documents.places import placed, places_of
from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.loading.jobs import find_job, job_document, to_job
from hpcjob.loading.overrides import Override
from hpcjob.loading.profiles import profile_names, read_profile
from hpcjob.loading.settings import Settings, load_settings, usual_account, usual_profile
from hpcjob.plan import Plan
from hpcjob.planning.make import make_plan
from hpcjob.profile import ClusterProfile
from hpcjob.resources import label
from hpcjob.source import Source

_DEFAULT_JOB, _DEFAULT_JOB_HERE = "2.7B/dp.yml", "quickstart.yml"

# Keys of a job whose values the profile gives where the job gives none.
_FROM_PROFILE = {
    "queue": "scheduler.resource",
    "extra": "scheduler.extra",
    "modules": "modules.load",
    "module_use": "modules.use",
}

Adapt = Callable[[JobFile, ClusterProfile], tuple[JobFile, ClusterProfile]]
FindAfter = Callable[[JobFile, ClusterProfile], tuple[list[Dependency], list[str]]]


def prepare(
    job: str | None = None,
    *,
    profile: str | None = None,
    overrides: Iterable[Override] = (),
    interpreter: str | None = None,
    find_after: FindAfter | None = None,
) -> Plan:
    """Bring job file, profile, options and settings together, for a job without a sweep; see `prepare_all`.

    Raises:
        InputError: as `prepare_all`, or it is a sweep.
    """
    every = prepare_all(job, profile=profile, overrides=overrides, interpreter=interpreter, find_after=find_after)
    if len(every) > 1:
        raise InputError(f"sweep: {len(every)} jobs, and one is requested", hint="hpcjob submit submits them all")
    return every[0]


def prepare_all(
    job: str | None = None,
    *,
    profile: str | None = None,
    overrides: Iterable[Override] = (),
    interpreter: str | None = None,
    find_after: FindAfter | None = None,
    adapt: Adapt | None = None,
) -> list[Plan]:
    """Bring job file, profile, options and settings together; return the plan of each job of a sweep, else of one.

    The profile is that of the argument, the job file, ``HPCJOB_PROFILE`` or the settings, in this order; the account
    that of the options, the job file, ``HPCJOB_ACCOUNT`` or the settings.

    Args:
        job: path or name of a job file; None: the 2.7B data-parallel run, on this machine the quickstart.
        overrides: values on top of the job file; a path ``profile.X`` sets X of the profile.
        interpreter: Python of a job that names none; default: the one that runs this.
        find_after: finds the jobs that ``after`` names; None leaves it out.
        adapt: changes job and profile before they are brought together.

    Raises:
        InputError: a file or value is refused; the message names its place.
    """
    settings = load_settings()
    overrides = list(overrides)
    for_job = [override for override in overrides if not override.is_for_profile]
    notes: list[str] = []
    path = find_job(job) if job else None
    document = job_document(path, for_job)
    cluster, profile_source = read_profile(
        profile or _profile_of(document, settings),
        [override.in_profile() for override in overrides if override.is_for_profile],
        notes=notes,
    )
    if path is None:
        path = find_job(_DEFAULT_JOB_HERE if cluster.scheduler.type == "local" else _DEFAULT_JOB)
        notes.append(f"no job file given: {label(path)}")
        document = job_document(path, for_job)
    maker = _Maker(
        cluster=cluster,
        settings=settings,
        name=path.stem,
        job_source=Source.of(path),
        profile_source=profile_source,
        notes=tuple(notes),
        interpreter=interpreter or sys.executable,
        find_after=find_after,
        adapt=adapt,
    )
    return [maker.plan(point) for point in _points(document, path.stem)]


def _profile_of(document: Document, settings: Settings) -> str:
    """Return the profile that the job file, the environment or the settings name."""
    chosen = document.data.get("profile") or usual_profile(settings)
    if isinstance(chosen, str):
        return chosen
    if chosen is not None:
        to_job(document)  # says what is wrong with the key `profile`
    raise InputError(
        "no profile given",
        hint=f"give --profile, HPCJOB_PROFILE or `profile:` in the job file: {', '.join(profile_names())}",
    )


def _points(document: Document, name: str) -> list[Document]:
    if "sweep" not in document.data:
        return [document]
    from hpcjob.loading.sweeps import points

    return points(document, name)


class _Maker(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one job file have in common: all but the values that a sweep changes.

    Attributes:
        name: name of a job that has none.
    """

    cluster: ClusterProfile
    settings: Settings
    name: str
    job_source: Source
    profile_source: Source
    notes: tuple[str, ...]
    interpreter: str
    find_after: FindAfter | None
    adapt: Adapt | None

    def plan(self, document: Document) -> Plan:
        """Return the plan of the job of ``document``. Raises InputError as `prepare_all` does."""
        told = [*self.notes, *_fill(document)]
        job = to_job(document)
        account, account_place = job.account, ""
        if account is None:
            account, account_place = usual_account(self.settings, self.cluster.names)
        places = self._places(document, job, account_place)
        with placed(places, JobFile.__struct_fields__):
            job = with_lines(job)
            if job.mail and job.mail_to is None:
                job = msgspec.structs.replace(job, mail_to=self.settings.mail_to)
            job, cluster = self.adapt(job, self.cluster) if self.adapt else (job, self.cluster)
            after, about = self.find_after(job, cluster) if self.find_after and job.after is not None else ([], [])
            return make_plan(
                job,
                cluster,
                name=self.name,
                interpreter=self.interpreter,
                account=account,
                after=after,
                notes=[*told, *about],
                places=places,
                job_source=self.job_source,
                profile_source=self.profile_source,
            )

    def _places(self, document: Document, job: JobFile, account_place: str) -> dict[str, str]:
        """Return the places of the document's keys, and of what comes from elsewhere in its stead."""
        places = places_of(document)
        places[""] = self.job_source.label
        if account_place:
            places["account"] = account_place
        of_profile = self.profile_source.label
        for name in self.cluster.env:
            if name not in job.env:
                places[f"env.{name}"] = of_profile
        for key, whence in _FROM_PROFILE.items():
            if not getattr(job, key):
                places[key] = f"{of_profile} ({whence})"
        return places


def _fill(document: Document) -> list[str]:
    """Put in the values of ``params``; a job without them that names one is refused too."""
    if "params" not in document.data and "{params." not in str(document.data):
        return []
    from hpcjob.loading.params import fill

    return fill(document)

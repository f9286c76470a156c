"""From files and options to a plan: job files, cluster profiles and the user's own settings are found, merged and read.

Each value remembers the file and line, or the option, that gave it, so that an error can name the place.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpcjob import documents, resources
from hpcjob.after import Dependency
from hpcjob.arrays import with_lines
from hpcjob.documents import Document, dotted
from hpcjob.errors import InputError
from hpcjob.job import ENV_NAME, ENV_NAME_HINT, JobFile, Text
from hpcjob.plan import Plan, Source, make_plan
from hpcjob.profile import ClusterProfile
from hpcjob.regular import read_regular

PROFILES, JOBS = "cluster_profiles", "jobs"
_DEFAULT_JOB, _DEFAULT_JOB_HERE = "2.7B/dp.yml", "quickstart.yml"
_ALIASES_LINE = re.compile(rb"^aliases:.*$", re.MULTILINE)
_PROFILE_SETTING = "profile."


class Override(msgspec.Struct, frozen=True):
    """One value given on the command line.

    Attributes:
        path: keys, ``("env", "X")`` or ``train.set.train_iters``.
        value: the value, or its YAML text.
        place: the option, for errors: ``--nodes``.
        is_yaml: whether ``value`` is YAML text.
    """

    path: str | tuple[str | int, ...]
    value: Any
    place: str
    is_yaml: bool = False

    def apply(self, document: Document) -> None:
        """Set the value in ``document``. Raises InputError where the path leads nowhere or the text is no YAML."""
        path = _value_of_param(self.path, document)
        if self.is_yaml:
            document.set_text(path, self.value, self.place)
        else:
            document.set(path, self.value, self.place)


def _value_of_param(path: str | tuple[str | int, ...], document: Document) -> str | tuple[str | int, ...]:
    """Return where ``params.NAME`` is set: a declaration of several lines keeps them."""
    parts = tuple(path.split(".")) if isinstance(path, str) else path
    params = document.data.get("params")
    if len(parts) == 2 and parts[0] == "params" and isinstance(params, dict) and isinstance(params.get(parts[1]), dict):
        return (*parts, "value")
    return path


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The user's own defaults, in ``~/.config/hpcjob/config.yml``.

    Attributes:
        profile: profile of a job that names none.
        accounts: profile name or alias -> group account.
        mail_to: address for the mails of jobs that ask for some.
    """

    profile: Text | None = None
    mail_to: Text | None = None
    accounts: dict[Text, Text] = {}


def load_settings() -> Settings:
    """Return the user's settings; without a file, none. Raises InputError if the file cannot be read as such."""
    path = resources.config_dir() / "config.yml"
    if not path.exists():
        return Settings()
    return documents.convert(documents.read(path, "configuration"), Settings, "configuration")


# --- profiles -------------------------------------------------------------------------------------------------------


def profile_names() -> list[str]:
    """Return the names of all profiles that are found, sorted; aliases are not among them."""
    return sorted({path.stem for folder in resources.folders(PROFILES) for path in folder.glob("*.yml")})


def load_profile(name_or_path: str, *, notes: list[str] | None = None) -> tuple[ClusterProfile, Path]:
    """Return the profile of that name, alias or path, and its file.

    Args:
        notes: a profile of the user's that hides a shipped one is announced here.

    Raises:
        InputError: there is none of that name (near names are offered), or it is no valid profile.
    """
    profile, source = read_profile(name_or_path, notes=notes)
    return profile, source.path


def read_profile(
    name_or_path: str, overrides: Iterable[Override] = (), *, notes: list[str] | None = None
) -> tuple[ClusterProfile, Source]:
    """Return the profile with ``overrides`` on top, and where it came from. See `load_profile`."""
    path = _find_profile(name_or_path)
    if notes is not None and (hidden := _hidden(path, name_or_path)):
        notes.append(f"profile {name_or_path}: {path} is used, it hides the shipped {_label(hidden)}")
    chain = _extended(path)
    document = chain[-1][1]
    for _, over in reversed(chain[:-1]):
        for own in ("aliases", "status", "name"):
            document.data.pop(own, None)
        document = documents.merge(document, over)
    document.data.setdefault("name", path.stem)
    for override in overrides:
        override.apply(document)
    _keep_env(document)
    profile = documents.convert(document, ClusterProfile, "profile")
    digest = hashlib.sha256(b"".join(read_regular(file) for file, _ in chain)).hexdigest()
    return profile, Source(label=_label(path), sha256=digest, path=path)


def profile_chain(name_or_path: str) -> list[Path]:
    """Return the file of a profile and those it extends, nearest first. Raises InputError as `load_profile`."""
    return [path for path, _ in _extended(_find_profile(name_or_path))]


def _find_profile(name: str, *, but: Sequence[Path] = ()) -> Path:
    if _is_path(name):
        return Path(name).expanduser()
    for path in _profiles_called(name):
        if not any(path.samefile(other) for other in but):
            return path
    known = profile_names()
    near = difflib.get_close_matches(name, [*known, *aliases()], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(f"no profile {name!r}", hint=f"{hint}profiles: {', '.join(known)} (`hpcjob profile list`)")


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yml", ".yaml"))


def _profiles_called(name: str) -> Iterator[Path]:
    """Yield the profiles of that name or alias, the one to use first."""
    folders = list(resources.folders(PROFILES))
    named = [folder / f"{name}.yml" for folder in folders]
    yield from (path for path in named if path.is_file())
    yield from (path for path in _files(folders) if path not in named and name in _aliases_of(path))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.glob("*.yml"))


def aliases() -> list[str]:
    """Return the aliases of all profiles that are found."""
    return [alias for path in _files(resources.folders(PROFILES)) for alias in _aliases_of(path)]


def _aliases_of(path: Path) -> list[str]:
    """Return the aliases of a profile from its one line, without reading the whole; a broken file has none."""
    try:
        line = _ALIASES_LINE.search(read_regular(path, documents.MAX_BYTES))
        found = documents.parse(line[0].decode(), str(path), "profile").data["aliases"] if line else []
    except (OSError, UnicodeDecodeError, InputError):
        return []
    return [str(alias) for alias in found] if isinstance(found, list) else []


def _hidden(path: Path, name: str) -> Path | None:
    """Return the shipped profile that the user's ``path`` hides under ``name``, if there is one."""
    ours = resources.shipped(PROFILES)
    if _is_path(name) or path.parent.samefile(ours):
        return None
    return next((other for other in _profiles_called(name) if other.parent.samefile(ours)), None)


def _extended(path: Path) -> list[tuple[Path, Document]]:
    """Return the profile at ``path`` and those it extends, nearest first.

    A profile may extend a shipped one of its own name. Raises InputError where the chain comes back to itself.
    """
    chain = [(path, documents.read(path, "profile"))]
    while (parent := chain[-1][1].data.get("extends")) is not None:
        file, document = chain[-1]
        place = document.place(("extends",))
        if not isinstance(parent, str):
            raise InputError(f"{place}: extends: {parent!r} is no name", hint="write the name of one profile")
        try:
            if _is_path(parent):
                found = file.parent / Path(parent).expanduser()
            else:
                found = _find_profile(parent, but=[file])
        except InputError as error:
            raise InputError(f"{place}: extends: {error.message}", hint=error.hint) from None
        seen = [other for other, _ in chain]
        if found.exists() and any(found.samefile(other) for other in seen):
            ring = " -> ".join(str(other) for other in [*seen, found])
            raise InputError(f"{place}: profiles extend one another in a ring: {ring}", hint="break the ring")
        chain.append((found, documents.read(found, "profile")))
    return chain


def _label(path: Path) -> str:
    for kind in (PROFILES, JOBS):
        ours = resources.shipped(kind).resolve()
        if path.resolve().is_relative_to(ours):
            return f"hpcjob:{kind}/{path.resolve().relative_to(ours)}"
    return str(path)


# --- job files ------------------------------------------------------------------------------------------------------


def job_names() -> list[str]:
    """Return the job files that are found in ``jobs`` folders, as ``2.7B/dp.yml``, sorted."""
    folders = resources.folders(JOBS)
    return sorted({str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*.yml")})


def find_job(name: str) -> Path:
    """Return the job file at the path ``name``, or the one of that name in a ``jobs`` folder.

    Raises:
        InputError: there is none; near names are offered.
    """
    path = Path(name).expanduser()
    if path.is_file() or path.is_absolute():
        return path
    inner = name.removeprefix(f"{JOBS}/")
    for candidate in (inner, f"{inner}.yml"):
        found, _ = resources.find(JOBS, candidate)
        if found:
            return found
    if path.is_dir():
        raise InputError(f"{name}: a folder, not a job file", hint="name a .yml file in it")
    known = job_names()
    near = difflib.get_close_matches(inner, [*known, *(job.removesuffix(".yml") for job in known)], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"job files: {', '.join(known) or 'none'}"
    raise InputError(f"{name}: no such job file", hint=hint)


def load_job(path: Path | None, overrides: Iterable[Override] = ()) -> JobFile:
    """Return the job file at ``path`` with ``overrides`` on top. Raises InputError as `documents.convert` does."""
    return _to_job(_job_document(path, overrides))


def _job_document(path: Path | None, overrides: Iterable[Override]) -> Document:
    document = documents.read(path, "job file") if path else Document({}, origin="job")
    for override in overrides:
        override.apply(document)
    return document


def _to_job(document: Document) -> JobFile:
    _keep_env(document)
    _keep_values(document)
    return documents.convert(document, JobFile, "job file")


def _keep_values(document: Document) -> None:
    """The items of an array's list are text: numbers keep their spelling."""
    array = document.data.get("array")
    if not isinstance(array, list):
        return
    for number, value in enumerate(array):
        if isinstance(value, (bool, int, float)):
            array[number] = document.texts.get(("array", number), str(value))


def _keep_env(document: Document) -> None:
    """Variables are text: numbers and booleans in ``env`` keep their spelling. Raises InputError for anything else."""
    steps = document.data.get("steps")
    paths: list[tuple[str | int, ...]] = [("env",)]
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            paths.append(("steps", index, "env"))
    for path in paths:
        variables = document.keep_text(path)
        for name, value in variables.items():
            place, key = document.place((*path, name)), dotted((*path, name))
            if not ENV_NAME.fullmatch(name):
                raise InputError(f"{place}: {dotted(path)}: {name!r} is no name of a variable", hint=ENV_NAME_HINT)
            if not isinstance(value, str):
                raise InputError(
                    f"{place}: {key}: expected text, got {value!r}", hint="write one value, quoted if need be"
                )


# --- both -----------------------------------------------------------------------------------------------------------


class Sources(msgspec.Struct, frozen=True):
    """What a plan was made from.

    Attributes:
        job: the job file. profile: the profile.
    """

    job: Source
    profile: Source


class Prepared(msgspec.Struct, frozen=True):
    """A plan and what it was made from."""

    plan: Plan
    sources: Sources


Adapt = Callable[[JobFile, ClusterProfile], tuple[JobFile, ClusterProfile]]
FindAfter = Callable[[JobFile, ClusterProfile], tuple[list[Dependency], list[str]]]


def prepare(
    job: str | None = None,
    *,
    profile: str | None = None,
    overrides: Iterable[Override] = (),
    interpreter: str | None = None,
    find_after: FindAfter | None = None,
) -> tuple[Plan, Sources]:
    """Bring job file, profile, options and settings together, for a job without a sweep; see `prepare_all`.

    Raises:
        InputError: as `prepare_all`, or it is a sweep.
    """
    every = prepare_all(job, profile=profile, overrides=overrides, interpreter=interpreter, find_after=find_after)
    if len(every) > 1:
        raise InputError(f"sweep: {len(every)} jobs, and one is asked for", hint="hpcjob submit submits them all")
    return every[0].plan, every[0].sources


def prepare_all(
    job: str | None = None,
    *,
    profile: str | None = None,
    overrides: Iterable[Override] = (),
    interpreter: str | None = None,
    find_after: FindAfter | None = None,
    adapt: Adapt | None = None,
) -> list[Prepared]:
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
    for_profile = [_inner(over) for over in overrides if _is_for_profile(over)]
    for_job = [over for over in overrides if not _is_for_profile(over)]
    notes: list[str] = []
    path = find_job(job) if job else None
    document = _job_document(path, for_job)
    chosen = profile or document.data.get("profile") or os.environ.get("HPCJOB_PROFILE") or settings.profile
    if not isinstance(chosen, str):
        if chosen is not None:
            _to_job(document)  # says what is wrong with the key `profile`
        raise InputError(
            "no profile given",
            hint=f"give --profile, HPCJOB_PROFILE or `profile:` in the job file: {', '.join(profile_names())}",
        )
    cluster, profile_source = read_profile(chosen, for_profile, notes=notes)
    if path is None:
        path = find_job(_DEFAULT_JOB_HERE if cluster.scheduler.type == "local" else _DEFAULT_JOB)
        notes.append(f"no job file given: {_label(path)}")
        document = _job_document(path, for_job)
    job_source = Source(label=_label(path), sha256=hashlib.sha256(read_regular(path)).hexdigest(), path=path)
    every = []
    for point in _points(document, path.stem):
        told = [*notes, *_fill(point)]
        wanted = with_lines(_to_job(point))
        if wanted.mail and wanted.mail_to is None:
            wanted = msgspec.structs.replace(wanted, mail_to=settings.mail_to)
        wanted, used = adapt(wanted, cluster) if adapt else (wanted, cluster)
        after, about = find_after(wanted, cluster) if find_after and wanted.after is not None else ([], [])
        plan = make_plan(
            wanted,
            used,
            name=path.stem,
            interpreter=interpreter or sys.executable,
            account=wanted.account or os.environ.get("HPCJOB_ACCOUNT") or account_of(settings, cluster),
            after=after,
            notes=[*told, *about],
            job_source=job_source,
            profile_source=profile_source,
        )
        every.append(Prepared(plan, Sources(job_source, profile_source)))
    return every


def _points(document: Document, name: str) -> list[Document]:
    if "sweep" not in document.data:
        return [document]
    from hpcjob.sweeps import points

    return points(document, name)


def _fill(document: Document) -> list[str]:
    """Put in the values of ``params``; a job without them that names one is refused too."""
    if "params" not in document.data and "{params." not in str(document.data):
        return []
    from hpcjob.params import fill

    return fill(document)


def _is_for_profile(override: Override) -> bool:
    return isinstance(override.path, str) and override.path.startswith(_PROFILE_SETTING)


def _inner(override: Override) -> Override:
    return msgspec.structs.replace(override, path=str(override.path).removeprefix(_PROFILE_SETTING))


def account_of(settings: Settings, profile: ClusterProfile) -> str | None:
    """Return the account that the user's settings have for ``profile``."""
    names = (profile.name, *profile.aliases)
    return next((settings.accounts[name] for name in names if name in settings.accounts), None)

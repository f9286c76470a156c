"""Job files by path or name, and the job that one asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document
from hpcjob.documents.reading import read
from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.job import JobFile
from hpcjob.loading.env import keep_env
from hpcjob.loading.overrides import Override
from hpcjob.resources import JOBS, find, folders
from neoxlite.common.near import near
from neoxlite.common.paths import is_dir, is_file, what_else


def job_names() -> list[str]:
    """Return the job files that are found in ``jobs`` folders, as ``2.7B/dp.yml``, sorted."""
    return sorted({str(path.relative_to(folder)) for folder in folders(JOBS) for path in folder.rglob("*.yml")})


def find_job(name: str) -> Path:
    """Return the job file at the path ``name``, or the one of that name in a ``jobs`` folder.

    Raises:
        InputError: there is none; near names are offered.
    """
    path = expanded(name)
    if path.is_absolute() or _may_be_there(path):
        return path
    inner = name.removeprefix(f"{JOBS}/")
    for candidate in (inner, f"{inner}.yml"):
        found, _ = find(JOBS, candidate)
        if found:
            return found
    if is_dir(path):
        raise InputError(f"{name}: a folder, not a job file", hint="name a .yml file in it")
    if other := what_else(path):
        raise InputError(f"{name}: {other}, not a job file", hint="name a .yml file")
    raise InputError(f"{name}: no such job file", hint=_hint(path, inner))


def _may_be_there(path: Path) -> bool:
    try:
        return is_file(path)
    except PermissionError:  # of a folder above: who reads the file will say so
        return True


def _hint(path: Path, name: str) -> str:
    """Say which job files there are that may have been meant: beside it, or in the ``jobs`` folders."""
    known = job_names()
    by_stem = {Path(job).stem: job for job in known}
    beside = _files_beside(path)
    found = [str(path.with_name(beside[like])) for like in near(path.stem, beside)]
    found += [by_stem[like] for like in near(Path(name).stem, by_stem)]
    if found:
        return f"did you mean {' or '.join(found[:3])}?"
    return f"job files: {', '.join(known) or 'none'}, or the path of one of your own"


def _files_beside(path: Path) -> dict[str, str]:
    """Return the YAML files in the folder of ``path``, by their names without the suffix."""
    try:
        return {other.stem: other.name for other in path.parent.iterdir() if other.suffix in (".yml", ".yaml")}
    except OSError:
        return {}


def load_job(path: Path | None, overrides: Iterable[Override] = ()) -> JobFile:
    """Return the job file at ``path`` with ``overrides`` on top. Raises InputError as `to_job` does."""
    return to_job(job_document(path, overrides))


def job_document(path: Path | None, overrides: Iterable[Override]) -> Document:
    """Return what the job file at ``path`` says, with ``overrides`` on top; without a file, what they alone say."""
    document = read(path, "job file") if path else Document({}, origin="job")
    for override in overrides:
        override.apply(document)
    return document


def to_job(document: Document) -> JobFile:
    """Return the job of ``document``. Raises InputError with the place of a key or value that fits none."""
    keep_env(document)
    _keep_values(document)
    return convert(document, JobFile, "job file")


def _keep_values(document: Document) -> None:
    """The items of an array's list are text: numbers keep their spelling."""
    array = document.data.get("array")
    if not isinstance(array, list):
        return
    for number, value in enumerate(array):
        if isinstance(value, (bool, int, float)):
            array[number] = document.texts.get(("array", number), str(value))

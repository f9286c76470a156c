"""``sweep:`` of a job file: one job for each point, with a name that tells which."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator

import msgspec

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document, KeyPath
from hpcjob.errors import InputError
from hpcjob.job import JobFile, Scalar, Text
from neoxlite.common.near import did_you_mean

MOST = 1000
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^\w.+=-]")
_Point = dict[str, tuple[Scalar, str]]  # key -> value, and its text as it was written


class _Swept(msgspec.Struct, frozen=True):
    sweep: dict[Text, list[Scalar]] | list[dict[Text, Scalar]] | None = None


def points(document: Document, name: str) -> list[Document]:
    """Return the document of each point of a sweep, in order; without a sweep the document itself.

    Args:
        name: name of a job that has none.

    Raises:
        InputError: the sweep is none, too large, or sweeps what the job does not have.
    """
    swept = convert(document.part("sweep"), _Swept, "job file").sweep
    if swept is None:
        return [document]
    every = _grid(swept, document) if isinstance(swept, dict) else _list(swept, document)
    found = list(itertools.islice(every, MOST + 1))
    where = document.place(("sweep",))
    if not found or not all(found):
        raise InputError(f"{where}: sweep: no values", hint="write sweep: {lr: [1e-4, 3e-4]}")
    if len(found) > MOST:
        raise InputError(f"{where}: sweep: more than {MOST} jobs", hint="split it, or use `array`")
    for key in dict.fromkeys(key for point in found for key in point):
        _check_key(key, document, where)
    base = str(document.data.get("name") or name)
    names = _names(base, found)
    return [_at(document, point, own) for point, own in zip(found, names, strict=True)]


def _grid(swept: dict[str, list[Scalar]], document: Document) -> Iterator[_Point]:
    columns = [
        [(key, (value, _text(document, ("sweep", key, number), value))) for number, value in enumerate(values)]
        for key, values in swept.items()
    ]
    if columns:
        yield from map(dict, itertools.product(*columns))


def _list(swept: list[dict[str, Scalar]], document: Document) -> Iterator[_Point]:
    for number, point in enumerate(swept):
        yield {key: (value, _text(document, ("sweep", number, key), value)) for key, value in point.items()}


def _text(document: Document, path: KeyPath, value: Scalar) -> str:
    return document.texts.get(path, value if isinstance(value, str) else repr(value))


def _check_key(key: str, document: Document, where: str) -> None:
    params = document.data.get("params")
    known = [*(params if isinstance(params, dict) else ()), *JobFile.__struct_fields__]
    first = key.partition(".")[0]
    if first not in known or first in ("sweep", "params", "name", "schema", "profile"):
        hint = did_you_mean(key, known, 2) or "sweep over `params`, or keys such as train.set.seed"
        raise InputError(f"{where}: sweep: {key!r} is neither a parameter nor a key of the job", hint=hint)


def _names(base: str, found: list[_Point]) -> list[str]:
    """Return a name for each point: ``base-lr=1e-4-seed=2``; numbered where these are too long or alike."""
    names = []
    for point in found:
        words = [f"{key.rpartition('.')[2]}={_UNSAFE.sub('_', text)}" for key, (_, text) in point.items()]
        names.append("-".join([base, *words]))
    if len(set(names)) == len(names) and max(map(len, names)) <= _LONGEST_NAME:
        return names
    return [f"{base}-{number:04d}" for number in range(1, len(found) + 1)]


def _at(document: Document, point: _Point, name: str) -> Document:
    made = Document(copy.deepcopy(document.data), dict(document.places), document.origin, dict(document.texts))
    del made.data["sweep"]
    made.data["name"] = name
    place = document.place(("sweep",))
    params = made.data.get("params")
    for key, (value, text) in point.items():
        path: str | KeyPath = key
        if isinstance(params, dict) and key in params:
            path = ("params", key, "value") if isinstance(params[key], dict) else ("params", key)
        made.set(path, value, f"{place} (sweep)", {} if isinstance(value, str) else {(): text})
    return made

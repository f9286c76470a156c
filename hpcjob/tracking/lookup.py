"""A job by what a user calls it: id, name, the beginning of a name, job directory, or ``latest``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from hpcjob.errors import UnknownJobError
from hpcjob.home import expanded
from hpcjob.naming import LATEST
from hpcjob.tracking.index import Index, read_settled
from hpcjob.tracking.records import Record
from neoxlite.common.printable import printable

_ELEMENT = re.compile(r"(?P<array>.+?)(?:_(?P<index>\d{1,6})|\[(?P<bracket>\d{1,6})\](?P<server>\..+)?)", re.ASCII)


def find_job(text: str, index: Index | None = None) -> Record:
    """Return the job of that id, name, unique beginning of a name, job directory, or ``latest``.

    ``JOB_7``, and ``123[7]`` as PBS and PJM write it, is the element of an array with index 7. An id that several
    clusters know is told apart as ``profile:id``. Of several jobs of one name the newest is meant.

    Raises:
        UnknownJobError: none is known, or several of different names begin so; they are listed.
    """
    index = index or read_settled()[0]
    records = index.records
    if not records:
        raise UnknownJobError(
            "no jobs are recorded here", hint="hpcjob submit, or hpcjob attach ID for one submitted by hand"
        )
    if text == LATEST:
        return records[0]
    for hits in _exact(text, records):
        if hits:
            return _the_one(text, hits)
    if element := _ELEMENT.fullmatch(text):
        return _element(
            f"{element['array']}{element['server'] or ''}", int(element["index"] or element["bracket"]), index
        )
    for hits in _matches(text, records):
        if hits:
            return _the_one(text, hits)
    recent = ", ".join(dict.fromkeys(f"{record.id} ({printable(record.name)})" for record in records[:4]))
    raise UnknownJobError(f"no job {text!r} is recorded", hint=f"the newest: {recent}; hpcjob list shows more")


def elements(record: Record) -> list[Record]:
    """Return the elements of an array, each as a job of its own; of any other job itself."""
    if record.array is None:
        return [record]
    from hpcjob.arrays import parse_spec

    return [record.element(index) for index in parse_spec(record.array)]


def _element(text: str, number: int, index: Index) -> Record:
    """Return an element of the array that ``text`` names. Raises UnknownJobError."""
    from hpcjob.arrays import parse_spec

    array = find_job(text, index)
    if array.array is None:
        raise UnknownJobError(
            f"job {array.id} ({printable(array.name)}) is not an array", hint=f"its own id is {array.id}"
        )
    if number not in parse_spec(array.array):
        raise UnknownJobError(f"array {array.id} has no element {number}", hint=f"its elements: {array.array}")
    return array.element(number)


def _exact(text: str, records: list[Record]) -> Iterable[list[Record]]:
    """Yield what is called so exactly, by id and by name."""
    profile, _, inner = text.partition(":")
    bare = text.replace("[]", "")  # an array, as PBS writes it
    yield [r for r in records if r.id in (text, bare) or (r.id == inner and r.profile == profile)]
    yield [record for record in records if record.name == text]
    yield [record for record in records if bare and re.fullmatch(rf"{re.escape(bare)}\.[\w.-]+", record.id)]


def _matches(text: str, records: list[Record]) -> Iterable[list[Record]]:
    """Yield what each looser way of naming a job finds, the strictest first."""
    if "/" in text:
        path = Path(os.path.abspath(expanded(text)))  # noqa: PTH100 - links are kept as the user wrote them
        yield [record for record in records if record.jobdir == path]
    if text:
        yield [record for record in records if record.name.startswith(text)]


def _the_one(text: str, hits: list[Record]) -> Record:
    newest = hits[0]
    same_id = [record for record in hits if record.id == text]
    kinds = {record.profile for record in same_id} if same_id else {record.name for record in hits}
    if len(kinds) == 1:
        return newest
    many = dict.fromkeys(f"{record.profile}:{record.id} ({printable(record.name)})" for record in hits[:6])
    raise UnknownJobError(f"{text!r} means several jobs", hint=f"say which: {', '.join(many)}")

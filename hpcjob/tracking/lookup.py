"""A job by what a user calls it: id, name, the beginning of a name, job directory, or ``latest``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from hpcjob.errors import UnknownJobError
from hpcjob.tracking.index import Index, read_index
from hpcjob.tracking.records import Record

LATEST = "latest"


def find_job(text: str, index: Index | None = None) -> Record:
    """Return the job of that id, name, unique beginning of a name, job directory, or ``latest``.

    An id that several clusters know is told apart as ``profile:id``. Of several jobs of one name the newest is meant.

    Raises:
        UnknownJobError: none is known, or several of different names begin so; they are listed.
    """
    records = (index or read_index()).records
    if not records:
        raise UnknownJobError(
            "no jobs are recorded here", hint="hpcjob submit, or hpcjob attach ID for one submitted by hand"
        )
    if text == LATEST:
        return records[0]
    for hits in _matches(text, records):
        if hits:
            return _the_one(text, hits)
    recent = ", ".join(dict.fromkeys(f"{record.id} ({record.name})" for record in records[:4]))
    raise UnknownJobError(f"no job {text!r} is recorded", hint=f"the newest: {recent}; hpcjob list shows more")


def _matches(text: str, records: list[Record]) -> Iterable[list[Record]]:
    """Yield what each way of naming a job finds, the strictest first."""
    profile, _, inner = text.partition(":")
    yield [record for record in records if record.id == text or (record.id == inner and record.profile == profile)]
    yield [record for record in records if record.name == text]
    if "/" in text:
        path = Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - links are kept as the user wrote them
        yield [record for record in records if record.jobdir == path]
    if text:
        yield [record for record in records if record.name.startswith(text)]
        bare = re.escape(text)
        yield [record for record in records if re.fullmatch(rf"{bare}\.[\w.-]+", record.id)]


def _the_one(text: str, hits: list[Record]) -> Record:
    newest = hits[0]
    same_id = [record for record in hits if record.id == text]
    kinds = {record.profile for record in same_id} if same_id else {record.name for record in hits}
    if len(kinds) == 1:
        return newest
    many = dict.fromkeys(f"{record.profile}:{record.id} ({record.name})" for record in hits[:6])
    raise UnknownJobError(f"{text!r} means several jobs", hint=f"say which: {', '.join(many)}")

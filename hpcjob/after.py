"""Jobs that have to end before another starts: which, and under which condition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from hpcjob.errors import InputError
from hpcjob.job import After, JobFile

Condition = Literal["ok", "any", "notok"]
_FAILURES = {"ok": "has not ended with code 0", "any": "has not ended", "notok": "has ended with code 0"}


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has to end first.

    Attributes:
        condition: ``ok``: with code 0; ``any``: however; ``notok``: with another code, or ended by somebody.
        id: its id, as hpcjob shows it; own_id: as its scheduler wants it.
        name: its name, where it is recorded.
        jobdir: its job directory; None of a job that is not recorded.
        records: exit records, of an array one for each element, as paths.
        is_array: whether it is an array.
    """

    condition: Condition
    id: str
    own_id: str
    name: str = ""
    jobdir: str | None = None
    records: tuple[str, ...] = ()
    is_array: bool = False

    @property
    def failure(self) -> str:
        """What is said where the condition has not come true: ``job 123 has not ended with code 0``."""
        return f"job {self.id} {_FAILURES[self.condition]}"

    @property
    def directive(self) -> str:
        """The condition as Slurm and PBS write it: ``afterok:123``."""
        return f"after{self.condition}:{self.own_id}"


def wanted(job: JobFile) -> Iterator[tuple[Condition, str]]:
    """Yield condition and name of each job that ``job`` wants to come after; a plain list is ``ok``.

    Raises:
        InputError: a name is empty.
    """
    after = job.after if isinstance(job.after, After) else After(ok=[] if job.after is None else job.after)
    for condition in get_args(Condition):
        names = getattr(after, condition)
        for name in names if isinstance(names, list) else [names]:
            text = str(name).strip()
            if not text:
                raise InputError("after: an empty name", hint="give ids or names of jobs, or latest")
            yield condition, text

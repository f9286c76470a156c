"""The result of explaining a job."""

from __future__ import annotations

import msgspec

from hpcjob.logs import topics


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log as evidence.

    Attributes:
        line: number of the line in ``source``, from 1.
    """

    source: str
    text: str
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    time: str | None = None


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event", tag="verdict"):
    """Why a job ended, or what is wrong with it.

    Attributes:
        code: exit code of ``hpcjob explain``; `hpcjob.logs.topics.MEANINGS` says what it means.
        cause: one sentence.
        fix: what to do.
        rule: the rule that knew the line, None if none did.
        rank, host, time: of the first process that failed, where the log tells.
        ranks: all ranks that say the same.
        evidence: lines that show it.
        followers: processes or lines that only complain of others, by what they say.
        others: further causes that were seen, after this one.
        warnings: what works but not as it should.
        odd: which rank or host differs from the others, where no cause is known.
        exclude: hosts to leave out next time.
        exclude_with: the same as words for a job file and for the scheduler.
        cost_gpu_hours: time of all GPUs since the last checkpoint.
    """

    code: int
    meaning: str
    cause: str
    fix: str | None = None
    rule: str | None = None
    rank: int | None = None
    host: str | None = None
    time: str | None = None
    ranks: list[int] = []
    evidence: list[Quote] = []
    followers: dict[str, int] = {}
    others: list[str] = []
    warnings: list[str] = []
    odd: list[str] = []
    exclude: list[str] = []
    exclude_with: dict[str, str] = {}
    last_iteration: int | None = None
    last_checkpoint: int | None = None
    cost_gpu_hours: float | None = None


def verdict(code: int, cause: str, fix: str | None = None) -> Verdict:
    """Return a verdict with the meaning of its code."""
    return Verdict(code=code, meaning=topics.MEANINGS[code], cause=cause, fix=fix)

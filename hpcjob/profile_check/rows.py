"""What the profile says beside what is here: a row a thing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["same", "differs", "unknown", "note"]


@dataclass(frozen=True)
class Row:
    """One thing that was looked at.

    Attributes:
        what: ``queue debug``, ``module cuda/12.4``.
        profile, here: what either says.
        todo: what to do about a difference.
        verdict: ``same``; ``differs``; ``unknown``: a command gave no answer; ``note``: only here, or only told.
    """

    what: str
    profile: str
    here: str
    todo: str = ""
    verdict: Verdict = "same"


def compared(what: str, profile: str, here: str | None, todo: str = "", *, unknown: str = "") -> Row:
    """Return a row of two values that should be the same; ``here`` None: not known, for the reason ``unknown``."""
    if here is None:
        return Row(what, profile, f"? {unknown}".strip(), "", "unknown")
    return Row(what, profile, here, *(("", "same") if profile == here else (todo, "differs")))


def is_model(seen: str, known: str | None) -> bool:
    """Whether a scheduler's word for a GPU (``h100``, ``nvidia_a100_40gb``) says no other than what people call it.

    What it says has to stand in ``known`` (``A100 40GB``): with the peak of another GPU each MFU would be wrong.
    """
    words = set(re.findall(r"[a-z0-9]+", seen.lower())) - {"nvidia", "tesla", "geforce", "amd"}
    return bool(words) and words <= set(re.findall(r"[a-z0-9]+", (known or "").lower()))

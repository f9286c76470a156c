"""PJM: ``pjstat --rsc``, whose table differs from site to site: names only.

Source: public notes on Wisteria and Fugaku name the command; no public text of its table was found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcjob.schedulers.seen import Ask, Seen, SeenQueue


def look(ask: Ask, names: Sequence[str]) -> Seen:
    """Return what PJM says: which of ``names`` its list of resource groups has as words."""
    seen = Seen(says_limits=False)
    version = (ask(["pjsub", "--version"]) or "").strip().splitlines()
    seen.version = version[0] if version else None
    resources = ask(["pjstat", "--rsc", "-x"]) or ask(["pjstat", "--rsc"])
    if resources is not None:
        words = set(re.findall(r"[\w.-]+", resources))
        seen.queues = {name: SeenQueue(name) for name in names if name in words}
        seen.source = "pjstat --rsc"
    return seen

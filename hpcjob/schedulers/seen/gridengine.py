"""Grid Engine: ``qconf -sc``, ``-sql`` and ``-sconf``: names only, the limits of resource types are a site's own.

Source: qconf(1) of github.com/daimh/sge at 05d828f.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcjob.schedulers.seen import Ask, Seen, SeenQueue


def look(ask: Ask, names: Sequence[str]) -> Seen:
    """Return what Grid Engine says; a resource type is a complex (``-l rt_F=1``), elsewhere a queue."""
    usage = (ask(["qstat", "-help"]) or "").splitlines()
    seen = Seen(version=usage[0].strip() if usage else None, says_limits=False)
    complexes, queues = ask(["qconf", "-sc"]), ask(["qconf", "-sql"])
    if complexes is not None:
        known = [line.split()[0] for line in complexes.splitlines() if line.strip() and not line.startswith("#")]
        known += (queues or "").split()
        seen.queues = {name: SeenQueue(name) for name in names if name in known}
        for name in (queues or "").split():
            seen.queues.setdefault(name, SeenQueue(name))
        seen.source = "qconf -sc; qconf -sql"
    if found := re.search(r"^max_aj_tasks\s+(\d+)", ask(["qconf", "-sconf"]) or "", re.MULTILINE):
        seen.array = int(found[1])
    return seen

"""PBS: ``qstat -Qf``, and where a site's own qstat takes no ``-Q`` its ``qstat --rsc`` for the names.

Source: qstat(1B) and pbs_queue_attributes(7B) of OpenPBS 23.06; for
Miyabi github.com/RIKEN-RCCS/OpenComposer at 4330e3a.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcjob.schedulers.seen import Ask, Seen, SeenQueue
from hpcjob.units import seconds_of


def look(ask: Ask, names: Sequence[str]) -> Seen:
    """Return what PBS says."""
    seen = Seen(version=_version(ask(["qstat", "--version"])))
    listed = ask(["qstat", "-Qf"])
    if listed is not None and "Queue: " in listed:
        seen.queues = {queue.name: queue for queue in _queues(listed)}
        seen.source = "qstat -Qf"
    elif (resources := ask(["qstat", "--rsc", "-x"])) is not None:
        words = set(re.findall(r"[\w.-]+", resources))
        seen.queues = {name: SeenQueue(name) for name in names if name in words}
        seen.source, seen.says_limits = "qstat --rsc -x", False
    server = ask(["qstat", "-Bf"]) or ""
    if found := re.search(r"^\s+max_array_size = (\d+)", server, re.MULTILINE):
        seen.array = int(found[1])
    default = re.search(r"^\s+default_queue = (\S+)", server, re.MULTILINE)
    if default and seen.queues and (queue := seen.queues.get(default[1])):
        seen.queues[default[1]] = replace(queue, is_default=True)
    return seen


def _version(said: str | None) -> str | None:
    """Read ``pbs_version = 2022.1.6``; an option that is not known is no version."""
    found = re.search(r"pbs_version\s*=\s*(\S+)", said or "")
    return f"PBS {found[1]}" if found else None


def _queues(text: str) -> list[SeenQueue]:
    found = []
    for record in re.split(r"^Queue: ", text, flags=re.MULTILINE)[1:]:
        name, _, lines = record.partition("\n")
        fields = dict(re.findall(r"^\s+([\w.]+) = (.*)$", lines, re.MULTILINE))
        nodes = fields.get("resources_max.nodect", "")
        found.append(
            SeenQueue(
                name.strip(),
                nodes=int(nodes) if nodes.isdigit() else None,
                walltime_s=seconds_of(fields.get("resources_max.walltime", "")) or None,
                is_open=fields.get("enabled", "True") == "True" and fields.get("started", "True") == "True",
            )
        )
    return found

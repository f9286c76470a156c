"""The profile that a check writes: `extends:` the one that was checked, with what was found here."""

from __future__ import annotations

import socket
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import yaml

from hpcjob.profile_check.rows import is_model
from hpcjob.units import format_clock

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile
    from hpcjob.profile_check.rows import Row
    from hpcjob.schedulers.seen import Seen, SeenQueue


def profile_text(profile: ClusterProfile, extends: str, rows: list[Row], seen: Seen) -> str:
    """Return the text of the file; what no command told stays as in the profile it extends.

    Args:
        extends: what the file extends, a name or an absolute path.
    """
    now = datetime.now(timezone.utc)
    day = now.strftime("%Y-%m-%d")
    lines = [
        f"# What `hpcjob profile check` found on {socket.gethostname()}, {now.strftime('%Y-%m-%d %H:%M')} UTC.",
        "# The rest is as in the profile that this one extends.",
        "schema: 1",
        f"extends: {_plain(extends)}",
        f"title: {_plain(profile.title)}",
    ]
    default = next((one.name for one in (seen.queues or {}).values() if one.is_default), None)
    if default and not profile.scheduler.resource:
        lines += [f"scheduler: {{resource: {_plain(default)}}} # the default one: {seen.source}, {day}"]
    if seen.array is not None and seen.array != profile.limits.array:
        lines += [f"limits: {{array: {seen.array}}} # {_array_source(profile)}, {day}"]
    cuda = next((row for row in rows if row.what == "cuda" and row.verdict in ("differs", "note")), None)
    if cuda:
        lines += [f'versions: {{cuda: "{cuda.here}"}} # nvcc --version after the modules, {day}']
    missing = [row for row in rows if row.what.startswith("module ") and row.verdict == "differs"]
    if missing:
        lines += [f"# modules: # `module avail`, {day}"]
        lines += [f"#   {row.what.removeprefix('module ')}: not found; {row.todo}" for row in missing]
    if seen.queues and seen.says_limits:
        lines += [f"queues: # {seen.source}, {day}"]
        lines += [line for queue in seen.queues.values() for line in _queue(profile, queue, f"{seen.source}, {day}")]
    return "\n".join(lines) + "\n"


def without_peak(text: str) -> list[str]:
    """Return the queues of a written profile that have GPUs of which it does not say what they can do."""
    queues = (yaml.safe_load(text).get("queues") or {}).items()
    nodes = ((name, queue.get("node") or {}) for name, queue in queues)
    return [name for name, node in nodes if node.get("gpus") and "peak_tflops" not in node]


def _array_source(profile: ClusterProfile) -> str:
    return {"slurm": "MaxArraySize of scontrol show config", "pbs": "qstat -Bf"}.get(
        profile.scheduler.type, "qconf -sconf"
    )


def _queue(profile: ClusterProfile, queue: SeenQueue, source: str) -> list[str]:
    sizes = []
    nodes, walltime_s = queue.nodes or profile.limits.nodes, queue.walltime_s
    if nodes and walltime_s:
        sizes = [{"nodes": nodes, "walltime": format_clock(walltime_s)}]
    entry: dict[str, object] = {"sizes": sizes} if sizes else {}
    if queue.gpus is not None:
        entry["node"] = _node(profile, queue)
    if not queue.is_open:
        entry["auto"] = False
    entry["source"] = source
    return [f"  {_plain(queue.name)}: {_flow(entry)}"]


def _node(profile: ClusterProfile, queue: SeenQueue) -> dict[str, object]:
    """Return the node of a queue: of GPUs that are called alike the profile knows more, of others only their name."""
    node: dict[str, object] = {"gpus": queue.gpus}
    known = profile.queues[queue.name].node if queue.name in profile.queues else None
    known = known or profile.node
    if queue.gpus and queue.gpu and is_model(queue.gpu, known.gpu):
        told = {"gpu": known.gpu, "gpu_memory_gib": known.gpu_memory_gib, "peak_tflops": known.peak_tflops}
        node |= {key: value for key, value in told.items() if value is not None}
    elif queue.gpus and queue.gpu:
        node["gpu"] = queue.gpu
    if queue.cores:
        node["cores"] = queue.cores
    if queue.memory_gib:
        node["memory_gib"] = round(queue.memory_gib, 1)
    return node


def _flow(value: object) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)).strip()


def _plain(text: str) -> str:
    return str(yaml.safe_dump(text, default_flow_style=True, width=10**6, allow_unicode=True)).split("\n")[0]

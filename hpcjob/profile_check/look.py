"""The rows of a check: scheduler, queues, modules, commands, account, Python and CUDA."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hpcjob.profile_check.probe import Probe
from hpcjob.profile_check.rows import Row, compared, is_model
from hpcjob.schedulers.requests import SUBMIT_COMMANDS
from hpcjob.schedulers.seen import Seen, SeenQueue, look
from hpcjob.units import format_clock, parse_walltime_s

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile

_LISTS = {
    "slurm": "sinfo -s lists them",
    "pbs": "qstat -Q lists them",
    "gridengine": "qconf -sc lists them",
    "pjm": "pjstat --rsc lists them",
    "local": "this machine has no queues",
}
_VERSIONS = r"""
printf 'python3\t%s\n' "$(python3 --version 2>&1)"
printf 'nvcc\t%s\n' "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
printf 'driver\t%s\n' "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p)"
"""


def check(profile: ClusterProfile, account: str | None, probe: Probe) -> tuple[list[Row], Seen]:
    """Return a row for each thing that was looked at, and what the scheduler said. Never raises, never submits.

    Args:
        account: the account that jobs of this user would be charged to; None: none is configured.
    """
    seen = look(profile, probe.ask)
    rows = [*_scheduler(profile, seen, probe), *_queues(profile, seen, probe), *_account(profile, account, seen)]
    rows += [*_modules(profile, probe), *_programs(profile, probe), *_machine(profile)]
    known = {row.what for row in rows}
    rows += [
        Row(f"command {line}", "-", _short(why), "", "note") for line, why in probe.failed.items() if line not in known
    ]
    return rows, seen


def _scheduler(profile: ClusterProfile, seen: Seen, probe: Probe) -> Iterator[Row]:
    kind = profile.scheduler.type
    if seen.version is not None:
        yield Row("scheduler", kind, seen.version)
    elif seen.queues is None:
        why = _short(next(iter(probe.failed.values()), "its commands did not answer"))
        todo = f"run this on a login node of {profile.title}, or choose another profile"
        yield Row("scheduler", kind, why, todo, "differs")
    else:
        yield Row("scheduler", kind, "version unknown", "", "note")
    if seen.array is not None and profile.limits.array is not None:
        yield compared("limits.array", str(profile.limits.array), str(seen.array), "limits: {array: ...}")
    elif seen.array is not None:
        yield Row("limits.array", "-", str(seen.array), "", "note")


def _queues(profile: ClusterProfile, seen: Seen, probe: Probe) -> Iterator[Row]:
    if seen.queues is None:
        if seen.version is not None:
            why = next(iter(probe.failed.values()), "its commands gave no list")
            yield Row("queues", ", ".join(profile.queues) or "-", f"? {why}", "", "unknown")
        return
    wanted = dict.fromkeys(
        [*(name for name in (profile.scheduler.resource, profile.scheduler.cpu_resource) if name), *profile.queues]
    )
    for name in wanted:
        there = seen.queues.get(name)
        if there is None:
            todo = f"{_LISTS[profile.scheduler.type]}: {_listed(list(seen.queues)) or 'none of these'}"
            yield Row(f"queue {name}", _said(profile, name), "no such queue", todo, "differs")
        elif not there.is_open:
            yield Row(
                f"queue {name}", _said(profile, name), "accepts no jobs now", "ask the site, or another queue", "note"
            )
        else:
            yield _queue(profile, there, seen)
    default = next((queue.name for queue in seen.queues.values() if queue.is_default), None)
    if default and not profile.scheduler.resource:
        yield Row("default queue", "the scheduler's", default, "", "note")
    others = [name for name in seen.queues if name not in wanted]
    if others:
        yield Row("other queues", "-", _listed(others), "--write adds them", "note" if wanted else "differs")


def _queue(profile: ClusterProfile, there: SeenQueue, seen: Seen) -> Row:
    """Compare what both tell of one queue."""
    said: list[str] = []
    here: list[str] = []
    for unit, ours, theirs in _pairs(profile, there):
        if ours is None and theirs is None:
            continue
        said.append("-" if ours is None else f"{ours} {unit}".strip())
        here.append(said[-1] if theirs is None else f"{theirs} {unit}".strip())
    what = f"queue {there.name}"
    if not seen.says_limits:
        return Row(what, _said(profile, there.name), "exists (limits unknown)")
    told, found = ", ".join(said), ", ".join(here)
    if all(ours is None or theirs is None or ours == theirs for _, ours, theirs in _pairs(profile, there)):
        return Row(what, told, found)
    return Row(what, told, found, f"queues: {{{there.name}: ...}}, or --write", "differs")


def _pairs(profile: ClusterProfile, there: SeenQueue) -> list[tuple[str, str | None, str | None]]:
    """Return words, the profile's value and the scheduler's, of what either may say of a queue."""
    queue = profile.queues.get(there.name)
    node = queue.node if queue and queue.node else profile.node
    sizes = queue.sizes if queue else []
    most = sizes[-1].nodes if sizes else profile.limits.nodes
    longest = [size.walltime for size in sizes] or ([profile.limits.walltime] if profile.limits.walltime else [])
    longest_s = max(map(parse_walltime_s, longest), default=None)
    return [
        ("nodes", _text(most), _text(there.nodes)),
        ("", _clock(longest_s), _clock(there.walltime_s)),
        ("GPUs", str(node.gpus), _text(there.gpus)),
        *([("", node.gpu, node.gpu if is_model(there.gpu, node.gpu) else there.gpu)] if there.gpu else []),
    ]


def _clock(seconds: int | None) -> str | None:
    return None if seconds is None else format_clock(seconds)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _said(profile: ClusterProfile, name: str) -> str:
    pairs = _pairs(profile, SeenQueue(name))
    return ", ".join(f"{ours} {words}".strip() for words, ours, _ in pairs if ours is not None)


def _account(profile: ClusterProfile, account: str | None, seen: Seen) -> Iterator[Row]:
    if profile.scheduler.account == "none":
        return
    said = account or ("one is required" if profile.scheduler.account_required else "none")
    if seen.accounts is None:
        yield Row("account", said, f"? {seen.accounts_source} did not answer", "", "unknown")
    elif account and account not in seen.accounts and seen.accounts:
        yield Row("account", said, _listed(seen.accounts), "HPCJOB_ACCOUNT or `accounts:` of config.yml", "differs")
    elif not account and profile.scheduler.account_required:
        todo = "accounts: {" + profile.name + ": GROUP} in ~/.config/hpcjob/config.yml"
        yield Row("account", said, f"yours: {_listed(seen.accounts)}", todo, "note")
    else:
        yield Row("account", said, _listed(seen.accounts) or "-")


def _modules(profile: ClusterProfile, probe: Probe) -> Iterator[Row]:
    modules = profile.modules
    for number, name in enumerate(modules.load):
        label = f"module avail {name}"
        found = _available(name, probe, profile, ())
        if found is False and number:  # a tree of modules shows some only after others
            found = _available(name, probe, profile, modules.load[:number])
        if found is None:
            why = probe.failed.pop(label, "no answer")
            yield Row(
                f"module {name}", "loaded", f"? {why}", "modules.init is the file that brings `module`", "unknown"
            )
        elif found:
            yield Row(f"module {name}", "loaded", "is there")
        else:
            near = _near(name, probe, profile, modules.load[:number])
            todo = f"modules: {{load: [...]}}, near: {_listed(near)}" if near else "modules: {load: [...]}"
            yield Row(f"module {name}", "loaded", "not found", todo, "differs")


def _available(name: str, probe: Probe, profile: ClusterProfile, loaded: Sequence[str]) -> bool | None:
    said = probe.modules(
        profile.modules, loaded=loaded, script=f"module -t avail {shlex.quote(name)} 2>&1", label=f"module avail {name}"
    )
    return None if said is None else any(one == name or one.startswith(f"{name}/") for one in _names(said))


def _near(name: str, probe: Probe, profile: ClusterProfile, loaded: Sequence[str]) -> list[str]:
    family = name.partition("/")[0]
    said = probe.modules(
        profile.modules,
        loaded=loaded,
        script=f"module -t avail {shlex.quote(family)} 2>&1",
        label=f"module avail {family}",
    )
    return [one for one in _names(said or "") if one.startswith(f"{family}/")]


def _names(said: str) -> list[str]:
    """Return the names of a terse list: without folders, marks such as ``(default)``, and links ``a -> b``."""
    lines = [re.sub(r"\(.*\)|@.*| -> .*", "", line).strip() for line in said.splitlines()]
    return [line.rstrip("/") for line in lines if line and not line.endswith(":") and " " not in line]


def _programs(profile: ClusterProfile, probe: Probe) -> Iterator[Row]:
    """Compare launchers, Python and CUDA in a shell with the modules of a job."""
    wanted = {SUBMIT_COMMANDS[profile.scheduler.type]: True, "torchrun": False}
    wanted["srun"] = profile.scheduler.type == "slurm"
    wanted[profile.launcher.mpirun] = profile.launcher.mpi and profile.scheduler.type != "local"
    wanted["ssh"] = wanted["pdsh"] = profile.ssh.access != "none"
    script = "\n".join(
        [*(f"printf '%s\\t%s\\n' {name} \"$(type -P -- {name})\"" for name in map(shlex.quote, wanted)), _VERSIONS]
    )
    modules = profile.modules
    if modules.init or modules.load:
        said = probe.modules(modules, loaded=modules.load, script=script, label="the programs of a job")
    else:
        said = probe.plain(script, "the programs of a job")
    if said is None:
        why = probe.failed.pop("the programs of a job", "no answer")
        yield Row("programs", "-", f"? {why}", "", "unknown")
        return
    here = dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
    yield from _launchers(profile, wanted, here)
    cuda = here.get("nvcc") or None
    if profile.versions.cuda:
        yield _cuda(profile.versions.cuda, cuda)
    elif cuda:
        yield Row("cuda", "-", cuda, "", "note")
    yield Row("python", "-", here.get("python3") or "-", "", "note")
    if here.get("driver"):
        yield Row("nvidia driver", "-", here["driver"], "", "note")


def _launchers(profile: ClusterProfile, wanted: dict[str, bool], here: dict[str, str]) -> Iterator[Row]:
    todo = {
        profile.launcher.mpirun: "launcher: {mpi: false}, or a module that has it",
        "pdsh": "use another launcher than pdsh",
        "ssh": "ssh: {access: none}",
        "srun": "run this on a login node",
    }
    for name, required in wanted.items():
        path = here.get(name) or ""
        if required and name == "pdsh":
            yield Row(
                name,
                "ssh.access " + profile.ssh.access,
                path or "not here",
                "" if path else todo[name],
                "same" if path else "note",
            )
        elif required:
            yield Row(
                name, "used", path or "not found", "" if path else todo.get(name, ""), "same" if path else "differs"
            )
        elif path or name == "torchrun":
            yield Row(name, "-", path or "comes with the job's Python", "", "note")


def _cuda(declared: str, here: str | None) -> Row:
    if here is None:
        return Row("cuda", declared, "? no nvcc after the modules", "", "unknown")
    same = here == declared or here.startswith(f"{declared}.") or declared.startswith(f"{here}.")
    return Row(
        "cuda",
        declared,
        here,
        "" if same else "versions: {cuda: ...}, or another module",
        "same" if same else "differs",
    )


def _machine(profile: ClusterProfile) -> Iterator[Row]:
    arch = platform.machine()
    if arch != profile.node.arch:
        yield Row(
            "arch", profile.node.arch, f"{arch} (this machine)", "node: {arch: ...} if its nodes are the same", "note"
        )


def _short(words: str) -> str:
    return words if len(words) <= 80 else f"{words[:77]}..."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

"""Variables of a job: which names are free, what the script adds, and how they reach the templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpcjob.arrays import Array
from hpcjob.elements import element_word
from hpcjob.errors import InputError
from hpcjob.plan import Plan, PlannedStep

_NCCL_DEFAULTS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}

# Variables that the script, the launchers or bash itself set: a job that sets them would not get what it asks for.
_OF_LAUNCHERS = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"
_OF_BASH = """
    _ DIRSTACK ENV EUID EXECIGNORE FUNCNAME FUNCNEST GLOBIGNORE GROUPS HISTCMD HOSTNAME HOSTTYPE ID IFS LINENO MACHTYPE
    MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT PPID PS4 PWD RANDOM REPLY SECONDS SHELLOPTS
    SHLVL SRANDOM UID
"""
_OF_SCRIPT = """
    address argv asked bad badness before bind bound child code count cpus digits ended family file first folder gpu
    helpers host hosts image job_id jobdir key kind known last launcher log mask missing module_init mpirun name names
    node_rank nodes numa outcome part pid place problem procs_per_node python record running said scratch seen signal
    signal_code signalled source_file step stop_at_s submit_dir tag tick tries value variable variables venv watcher
    word words world_size worst
"""
_RESERVED = frozenset(f"{_OF_LAUNCHERS} {_OF_BASH} {_OF_SCRIPT}".split())
_RESERVED_FAMILY = re.compile(r"(HPCJOB|NEOXLITE)_\w*|BASH\w*|COMP_\w*|EPOCH\w*|array_\w+|container\w*")
_SECRET = re.compile(r"(\w*_)?(TOKEN|SECRET|PASSWORD|PASSWD|PAT|(API|ACCESS|SECRET|PRIVATE)_KEY)", re.IGNORECASE)


def is_reserved(name: str) -> bool:
    """Whether the script, a launcher or bash sets a variable of that name itself."""
    return name in _RESERVED or _RESERVED_FAMILY.fullmatch(name) is not None


def is_secret(name: str) -> bool:
    """Whether a variable of that name holds what no script may show."""
    return _SECRET.fullmatch(name) is not None


def variables(env: Mapping[str, Any], key: str, array: Array | None) -> list[dict[str, str]]:
    """Return variables for the templates.

    Raises:
        InputError: the script, a launcher or bash sets the variable itself, or it is a secret.
    """
    for name in env:
        if is_reserved(name):
            raise InputError(f"{key}.{name}: is set by the job script itself", hint="give the variable another name")
        if is_secret(name):
            raise InputError(
                f"{key}.{name}: a secret would stand in the script for all to read",
                hint="export it in a file of your own (chmod 600) and name that file under `source:`",
            )
    return [
        {"name": name, "value": element_word(str(value), array, f"{key}.{name}"), "key": f"{key}.{name}"}
        for name, value in env.items()
    ]


def step_variables(plan: Plan, step: PlannedStep, key: str, world_size: int) -> list[dict[str, str]]:
    """Return the variables of one step: its own, and what its ranks need beside them.

    Raises:
        InputError: as `variables`.
    """
    found = variables(step.env, key, plan.array)
    found.append({"name": "NEOXLITE_WORLD_SIZE", "value": str(world_size), "key": "nodes"})
    shares_node = step.launcher != "none" and plan.procs_per_node > 1
    if shares_node and "OMP_NUM_THREADS" not in {*plan.env, *step.env}:
        found.append({"name": "OMP_NUM_THREADS", "value": str(_threads(plan)), "key": "cpus_per_gpu"})
    return found


def _threads(plan: Plan) -> int:
    """Return the threads of one rank: the cores that it asks for, else its share of the node's."""
    node = plan.profile.node
    share = (node.cores or 1) * (plan.gpus_per_node / node.gpus if plan.gpus_per_node else 1)
    return plan.cpus_per_proc or max(1, int(share) // plan.procs_per_node)


def network(plan: Plan) -> list[dict[str, str]]:
    """Return NCCL's defaults that the job leaves alone, and the interface for NCCL's and gloo's own connections."""
    found = dict(_NCCL_DEFAULTS) if plan.gpus_per_node else {}
    if interface := plan.profile.network_interface:
        found["GLOO_SOCKET_IFNAME"] = interface
        if plan.gpus_per_node:
            found["NCCL_SOCKET_IFNAME"] = interface
    return [{"name": name, "value": value} for name, value in found.items() if name not in plan.env]

"""Job file x cluster profile -> script text. Pure: only templates are read, and the same plan gives the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from hpcjob import __version__
from hpcjob.arrays import Array, parse_spec, tasks_of
from hpcjob.elements import element_word
from hpcjob.errors import HpcjobError, InputError
from hpcjob.job import Python, Ulimits
from hpcjob.launchers import launch_line
from hpcjob.plan import Plan, PlannedStep, uses_pyxis
from hpcjob.quoting import ScriptText, comment
from hpcjob.schedulers.requests import SUBMIT_COMMANDS, request, script_checks
from hpcjob.templating import Loader, environment
from hpcjob.units import format_clock

_GIVEN = "given"  # name of a template given by its path, so that it can extend the shipped one of any name
_SOURCES_LINE = "#=sources=#\n"
_LINE_LENGTH = 100  # about, of the words of a command
_NCCL_DEFAULTS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}

# Variables that the script, the launchers or bash itself set: a job that sets them would not get what it asks for.
_RESERVED = re.compile(
    r"(HPCJOB|NEOXLITE)_\w*|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|_|BASH\w*|COMP_\w*|SHELLOPTS|SHLVL|PWD|OLDPWD|"
    r"U?ID|EUID|PPID|IFS|ENV|DIRSTACK|FUNCNAME|FUNCNEST|GROUPS|HISTCMD|HOSTNAME|HOSTTYPE|LINENO|MACHTYPE|MAPFILE|OPTARG|"
    r"OPTERR|OPTIND|OSTYPE|PIPESTATUS|POSIXLY_CORRECT|PS4|RANDOM|REPLY|SECONDS|SRANDOM|EPOCH\w*|GLOBIGNORE|EXECIGNORE|"
    r"address|argv|array_\w+|asked|before|bind|bound|cpus|ended|gpu|numa|part|pid|place|record|running|worst|child|code|container\w*|count|digits|family|file|first|folder|helpers|host|hosts|image|jobdir|job_id|key|kind|"
    r"known|last|launcher|log|mask|missing|module_init|mpirun|name|names|node_rank|nodes|outcome|problem|procs_per_node|python|scratch|"
    r"record|said|seen|signal|signalled|source_file|signal_code|step|stop_at_s|submit_dir|tag|tick|tries|value|variables?|"
    r"venv|watcher|words?|world_size"
)
_SECRET = re.compile(r"(\w*_)?(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)", re.IGNORECASE)


@dataclass(frozen=True)
class Rendered:
    """A script, and what its reader should know of it.

    Attributes:
        script: text of the script.
        notes: the plan's notes and those about templates; each is a comment of the script too.
    """

    script: str
    notes: tuple[str, ...]


def render(plan: Plan, *, jobdir: str | None = None, template: Path | None = None) -> str:
    """Return the batch script of ``plan``: `render_with_notes` without the notes."""
    return render_with_notes(plan, jobdir=jobdir, template=template).script


def render_with_notes(
    plan: Plan, *, jobdir: str | None = None, template: Path | None = None, interactive: bool = False
) -> Rendered:
    """Return the batch script of ``plan``.

    Args:
        jobdir: folder of the job, which exists when the script starts; None: the script makes one.
        interactive: the same with a shell in the place of the work (``templates/interactive.sh.j2``).
        template: a template to use in place of ``templates/<scheduler>.sh.j2``.

    Raises:
        InputError: a value fits neither shell nor scheduler; the message names its key.
        HpcjobError: a template is missing or broken, or puts out a value that went through no filter.
    """
    scheduler = plan.profile.scheduler.type
    main = _GIVEN if template else "interactive.sh.j2" if interactive else f"{scheduler}.sh.j2"
    loader = Loader(template, _GIVEN)
    context = {**_context(plan, jobdir), **(_of_shell(plan) if interactive else {})}
    try:
        text = environment(loader, scheduler).get_template(main).render(context)
    except jinja2.TemplateNotFound as error:
        raise HpcjobError(f"there is no template {error.name}", hint="put it into a folder `templates`") from None
    except jinja2.TemplateSyntaxError as error:
        where = f"{error.filename or main}:{error.lineno}"
        raise HpcjobError(f"{where}: {error.message}", hint="mend the template") from None
    except jinja2.TemplateError as error:
        used = ", ".join(map(str, loader.used.values()))
        raise HpcjobError(f"template: {error.message}", hint=f"mend one of {used}") from None
    told = tuple(f"template {name} is {path}" for name, path in loader.own().items())
    header = _header(plan, loader, interactive=interactive) + "".join(f"# note: {comment(note)}\n" for note in told)
    return Rendered(text.replace(f"\n{_SOURCES_LINE}", f"\n{header}", 1), (*plan.notes, *told))


def _header(plan: Plan, loader: Loader, *, interactive: bool) -> str:
    """Return the lines that say what the script was made from."""
    digest = f"sha256 {loader.sha256[:12]}"
    lines = [f"{plan.profile.title}: made by hpcjob {__version__}"]
    lines += [
        f"{kind} {source.label}, sha256 {source.sha256[:12]}"
        for kind, source in (("job", plan.job_source), ("profile", plan.profile_source))
        if source
    ]
    lines.append(f"template {' over '.join(list(loader.used)[:2])} and parts, {digest}")
    submit = SUBMIT_COMMANDS[plan.profile.scheduler.type]
    if interactive:
        lines.append("the shell of hpcjob interactive, started by its command; the directives say what is asked")
        lines.append("shellcheck disable=SC2034,SC2154")  # of what a job's steps set and use
    elif plan.profile.scheduler.account == "-g-cli":
        group = plan.account or "GROUP"
        lines.append(f"submit: {submit} -g {group} FILE   (the group is taken on the command line only)")
    else:
        lines.append(f"submit: {submit} FILE")
    return "".join(f"# {comment(line)}\n" for line in lines)


# --- what templates see ---------------------------------------------------------------------------------------------


def _context(plan: Plan, jobdir: str | None) -> dict[str, Any]:
    profile = plan.profile
    first = plan.steps[0].python
    return {
        **request(plan),
        "name": plan.name,
        "jobdir": jobdir,
        "notes": plan.notes,
        "summary": _summary(plan),
        "modules": plan.modules,
        "module_use": plan.module_use,
        "module_init": profile.modules.init,
        "module_purge": profile.modules.purge,
        "source": plan.job.source,
        "pyxis": uses_pyxis(profile) and any(step.python.container for step in plan.steps),
        "python": _python(plan, first, [step for step in plan.steps if step.python == first]),
        "commands": _commands(plan),
        "gpu_wrong": ScriptText("<" if profile.scheduler.type == "local" else "!="),
        "versions": (profile.versions.cuda or "-", profile.versions.nccl or "-", profile.versions.nccl_from),
        "env": _variables(plan.env, "env", plan.array),
        "array": _array(plan),
        "limits": _limits(plan.job.limits),
        "bind": plan.job.bind,
        "scratch": profile.node.scratch,
        "stage_in": _staged(plan, "stage_in"),
        "stage_out": _staged(plan, "stage_out"),
        "after": _after(plan),
        "names_of_env": sorted(plan.env),
        "mpirun": _mpirun(plan),
        "mpirun_failure": f"launcher: there is no {plan.profile.launcher.mpirun} on PATH",
        "network": [{"name": name, "value": value} for name, value in _nccl(plan).items()],
        "nccl_file": plan.gpus_per_node and "NCCL_DEBUG_FILE" not in plan.env,
        "flight_recorder": plan.gpus_per_node and not any("_FR_" in name or "_TRACE_BUF" in name for name in plan.env),
        "peak_tflops": profile.node.peak_tflops and f"{profile.node.peak_tflops:g}",
        "internet": "1" if profile.internet else "0",
        "interface": profile.network_interface,
        "hosts": plan.hosts,
        "master_addr": plan.master_addr,
        "master_port": plan.master_port,
        "port_base": profile.master_port_base,
        "agents": any(step.launcher in ("torchrun", "pdsh") for step in plan.steps),
        "remote": plan.nodes > 1 and "pdsh" in plan.launchers,
        "ssh_port": profile.ssh.port,
        "steps": [_step(plan, step, number) for number, step in enumerate(plan.steps, 1)],
    }


def _of_shell(plan: Plan) -> dict[str, Any]:
    """Return what the template of a shell needs beside a job's context."""
    launcher = next((step.launcher for step in plan.steps if step.launcher != "none"), plan.steps[0].launcher)
    any_ = PlannedStep(
        name="launch", argv=("true",), launcher=launcher, env={}, python=plan.steps[0].python, is_train=False
    )
    ranks = plan.world_size if launcher != "none" else 1
    shape = f"{plan.nodes} node{'s' if plan.nodes > 1 else ''}"
    if plan.gpus_per_node:
        shape = f"{plan.nodes} x {plan.gpus_per_node} GPU{'s' if plan.gpus_per_node > 1 else ''}"
    started = f"{ranks} ranks by {launcher}" if ranks > 1 else "one process"
    work = ", ".join(step.name for step in plan.steps)
    return {
        "parent": f"{plan.profile.scheduler.type}.sh.j2",
        "any": _step(plan, any_, 0),
        "shell_s": 0 if plan.profile.scheduler.type == "local" else plan.walltime_s,
        "shape": shape,
        "advice": f"; `launch COMMAND...`: {started}, `launch`: the job's own work ({work}), `exit`: the end",
    }


def _summary(plan: Plan) -> str:
    shape = f"{plan.nodes} x {plan.gpus_per_node} GPUs, {plan.nodes} x {plan.procs_per_node} ranks"
    steps = ", ".join(f"{step.name} ({step.launcher})" for step in plan.steps)
    walltime = f", walltime {format_clock(plan.walltime_s)}" if plan.walltime_s else ""
    return f"{shape}{walltime}; {steps}"


def _python(plan: Plan, python: Python, steps: Sequence[PlannedStep]) -> dict[str, Any]:
    """Return what a script needs to enter ``python``, with the packages that ``steps`` import from it."""
    packages = ["neoxlite", "deepspeed"] if any(step.is_train for step in steps) else []
    if any(step.is_train or step.launcher in ("torchrun", "pdsh") for step in steps):
        packages.append("torch")
    return {
        "venv": python.venv,
        "container": python.container and python.container.image,
        "binds": _binds(plan, python),
        "pyxis": uses_pyxis(plan.profile),
        "conda": python.conda,
        "conda_failure": f"python.conda: {python.conda} could not be activated",
        "executable": python.executable,
        "executable_failure": f"python.executable: there is no {python.executable}",
        "packages": packages,
    }


def _binds(plan: Plan, python: Python) -> list[str]:
    """Return the folders to bind; pyxis wants source and target of each."""
    binds = python.container.binds if python.container else []
    return [bind if ":" in bind or not uses_pyxis(plan.profile) else f"{bind}:{bind}" for bind in binds]


def _commands(plan: Plan) -> list[dict[str, str]]:
    """Return the commands that the launch lines need, mpirun excepted."""
    needed = {"pdsh"} if "pdsh" in plan.launchers and plan.nodes > 1 else set()
    if plan.profile.scheduler.type == "slurm" and {"srun", "torchrun"} & set(plan.launchers):
        needed.add("srun")
    return [{"name": name, "failure": f"launcher: there is no {name} on PATH"} for name in sorted(needed)]


def _mpirun(plan: Plan) -> str | None:
    agents = plan.profile.scheduler.type != "slurm" and plan.nodes > 1 and "torchrun" in plan.launchers
    return plan.profile.launcher.mpirun if agents or "mpirun" in plan.launchers else None


def _nccl(plan: Plan) -> dict[str, str]:
    """Return NCCL's defaults that the job leaves alone, and the interface for NCCL's and gloo's own connections."""
    variables = dict(_NCCL_DEFAULTS) if plan.gpus_per_node else {}
    if interface := plan.profile.network_interface:
        variables["GLOO_SOCKET_IFNAME"] = interface
        if plan.gpus_per_node:
            variables["NCCL_SOCKET_IFNAME"] = interface
    return {name: value for name, value in variables.items() if name not in plan.env}


def is_reserved(name: str) -> bool:
    """Whether the script, a launcher or bash sets a variable of that name itself."""
    return _RESERVED.fullmatch(name) is not None


def is_secret(name: str) -> bool:
    """Whether a variable of that name holds what no script may show."""
    return _SECRET.fullmatch(name) is not None


def _array(plan: Plan) -> dict[str, Any] | None:
    """Return what the script of an array needs to know which element it is."""
    if plan.array is None:
        return None
    indices = parse_spec(plan.array.spec)
    tasks = tasks_of(plan.array.spec, plan.profile.scheduler.type)
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    even = list(indices) == list(range(indices[0], indices[0] + len(indices) * step, step))
    return {
        "same": tasks.same,
        "first_task": tasks.first,
        "start": indices[0],
        "step": step if even else 0,
        "indices": indices,
        "values": plan.array.values or (),
        "count": len(indices),
        "limit": plan.array.limit or 0,
        "one_at_once": plan.gpus_per_node > 0,
    }


def _limits(limits: Ulimits | None) -> list[dict[str, str]]:
    """Return the letters of ``ulimit`` and the values asked for."""
    asked = msgspec.structs.asdict(limits) if limits else {}
    letters = {"nofile": "n", "memlock": "l", "stack": "s"}
    return [
        {"letter": f"-S{letters[name]}", "most": f"-H{letters[name]}", "value": str(value), "key": f"limits.{name}"}
        for name, value in asked.items()
        if value is not None
    ]


def _staged(plan: Plan, key: str) -> list[str]:
    """Return the files to copy.

    Raises:
        InputError: the job has several nodes, each with a scratch of its own, or a name leads out of the scratch.
    """
    files: list[str] = getattr(plan.job, key)
    if files and plan.nodes > 1:
        raise InputError(
            f"{key}: {plan.nodes} nodes, and each has a scratch of its own",
            hint="copy in the command: each rank of LOCAL_RANK 0 to $HPCJOB_SCRATCH of its node",
        )
    if key == "stage_out":
        for name in files:
            if name.startswith("/") or ".." in name.split("/"):
                raise InputError(f"{key}: {name!r} leads out of the scratch folder", hint="give a name inside it")
    return [element_word(name, plan.array, key) for name in files]


def _after(plan: Plan) -> list[dict[str, Any]]:
    """Return the conditions on earlier jobs that the script has to check itself; see docs/job-file.md."""
    return [
        {"words": f"after: {one.words}", "condition": one.condition, "id": one.id, "records": one.records}
        for one in script_checks(plan)
    ]


def _variables(env: Mapping[str, Any], key: str, array: Array | None) -> list[dict[str, str]]:
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


def _step(plan: Plan, step: PlannedStep, number: int) -> dict[str, Any]:
    several = len(plan.steps) > 1
    work = "train" if step.is_train else "command"
    launched = step.launcher != "none"
    world_size = plan.world_size if launched else 1
    own = _variables(step.env, f"steps[{number - 1}].env" if several else "env", plan.array)
    key = f"steps[{number - 1}].{work}" if several else work
    own.append({"name": "NEOXLITE_WORLD_SIZE", "value": str(world_size), "key": "nodes"})
    if launched and plan.procs_per_node > 1 and not {"OMP_NUM_THREADS"} & {*plan.env, *step.env}:
        own.append({"name": "OMP_NUM_THREADS", "value": str(_threads(plan)), "key": "cpus_per_gpu"})
    return {
        "number": number,
        "name": step.name,
        "name_json": json.dumps(step.name, ensure_ascii=False),
        "kind": work,
        "key": key,
        "launcher": step.launcher,
        "world_size": world_size,
        "env": own,
        "python": None if step.python == plan.steps[0].python else _python(plan, step.python, [step]),
        "argv": _argv([element_word(word, plan.array, key) for word in step.argv]),
        "launch": launch_line(plan, step.launcher, ScriptText(f'"$jobdir/step{number}.sh"')),
    }


def _argv(words: Sequence[str]) -> list[list[str]]:
    """Return the words of a step by lines: each long option begins one. rank.sh puts the step's Python for `python`."""
    lines: list[list[str]] = [[]]
    for word in words:
        if lines[-1] and (word.startswith("--") or sum(map(len, lines[-1])) + len(word) > _LINE_LENGTH):
            lines.append([])
        lines[-1].append(word)
    return lines


def _threads(plan: Plan) -> int:
    """Return the threads of one rank: the cores that it asks for, else its share of the node's."""
    node = plan.profile.node
    share = (node.cores or 1) * (plan.gpus_per_node / node.gpus if plan.gpus_per_node else 1)
    return plan.cpus_per_proc or max(1, int(share) // plan.procs_per_node)

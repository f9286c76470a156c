"""The options that ``render`` and ``submit`` share: which job, on which cluster, and what to change of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcjob.errors import InputError
from hpcjob.home import expanded
from neoxlite.common.paths import exists, is_dir
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.loading.prepare import Adapt, FindAfter
    from hpcjob.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])

_LAUNCHERS = click.Choice(["mpirun", "torchrun", "srun", "pdsh"])


def _complete_job(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from hpcjob.loading.jobs import job_names

    hits = [f"jobs/{name}" for name in job_names() if f"jobs/{name}".startswith(incomplete)]
    return [*map(CompletionItem, hits), CompletionItem(incomplete, type="file")]


def complete_profile(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from hpcjob.loading.profiles import aliases, profile_names

    return [name for name in [*profile_names(), *aliases()] if name.startswith(incomplete)]


_OPTIONS = (
    click.option(
        "--profile", "-p", metavar="NAME", shell_complete=complete_profile, help="Cluster profile, or its file."
    ),
    click.option("--nodes", "-n", metavar="N", help="Number of nodes."),
    click.option("--gpus-per-node", metavar="N", help="GPUs of each node."),
    click.option("--walltime", "-t", metavar="TIME", help="Limit: HH:MM:SS, D-HH:MM:SS, 90m, 1d12h."),
    click.option("--launcher", type=_LAUNCHERS, help="How the ranks are started."),
    click.option("--account", "-A", metavar="GROUP", help="Group account that pays."),
    click.option("--queue", "-q", metavar="NAME", help="Queue, partition, resource type; auto: chosen by hpcjob."),
    click.option("--name", "-N", metavar="NAME", help="Name of the job."),
    click.option("--python", metavar="PATH", help="Interpreter, virtual environment, or conda:NAME."),
    click.option("--env", multiple=True, metavar="K=V", help="Variable for all ranks; may be repeated."),
    click.option(
        "--after",
        multiple=True,
        metavar="[COND:]JOB",
        help="Start after JOB has succeeded; COND is ok, any or notok; may be repeated.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="A.B=C",
        help="Set any key of the job, or profile.A=C of the profile; may be repeated.",
    ),
)


def job_options(function: F) -> F:
    """Give a command the argument JOB and the shared options. Pass them on with `plans_from_options`."""
    return click.argument("job", required=False, shell_complete=_complete_job)(_with_options(function))


def jobs_options(function: F) -> F:
    """Give a command any number of arguments JOB, and the shared options."""
    return click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=_complete_job)(_with_options(function))


def _with_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def plans_from_options(
    *,
    job: str | None = None,
    profile: str | None = None,
    nodes: str | None = None,
    gpus_per_node: str | None = None,
    walltime: str | None = None,
    launcher: str | None = None,
    account: str | None = None,
    queue: str | None = None,
    name: str | None = None,
    python: str | None = None,
    env: Sequence[str] = (),
    after: Sequence[str] = (),
    settings: Sequence[str] = (),
    find_after: FindAfter | None = None,
    adapt: Adapt | None = None,
) -> list[Plan]:
    """Return the plans that the options of `job_options` ask for: one, or one for each point of a sweep.

    Raises:
        InputError: an option, the job file or the profile is refused; the message names the option, or file and line.
    """
    from hpcjob.loading.overrides import Override
    from hpcjob.loading.prepare import prepare_all

    single = {"walltime": walltime, "launcher": launcher, "account": account, "queue": queue, "name": name}
    counts = {"nodes": nodes, "gpus_per_node": gpus_per_node}
    overrides = [
        Override(key, value, f"--{key.replace('_', '-')}", is_yaml=key in counts)
        for key, value in {**counts, **single}.items()
        if value is not None
    ]
    if python is not None:
        overrides.append(Override("python", _python(python), "--python"))
    for item in env:
        variable, value = split_option(item, "--env", "K=V")
        overrides.append(Override(("env", variable), value, f"--env {variable}"))
    if after:
        overrides.append(Override("after", _after(after), "--after"))
    for item in settings:
        path, value = split_option(item, "--set", "a.b=c")
        overrides.append(Override(path, value, f"--set {path}", is_yaml=True))
    return prepare_all(job, profile=profile, overrides=overrides, find_after=find_after, adapt=adapt)


def show_warnings(plan: Plan, *, strict: bool) -> None:
    """Print on stderr what looks wrong in a job.

    Raises:
        InputError: something does, and ``strict`` is set.
    """
    from hpcjob.lint import lint

    found = lint(plan)
    for warning in found:
        tell(f"warning: {warning}")
    if strict and found:
        count = "1 warning" if len(found) == 1 else f"{len(found)} warnings"
        raise InputError(f"--strict: {count}", hint="fix them, or omit --strict")


def _after(items: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"ok": [], "any": [], "notok": []}
    for item in items:
        condition, colon, name = item.partition(":")
        condition = condition.removeprefix("after")
        known = bool(colon) and condition in found
        found[condition if known else "ok"].append(name if known else item)
    return found


def split_option(item: str, option: str, shape: str) -> tuple[str, str]:
    """Return key and value of ``KEY=VALUE``. Raises InputError where that is none."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise InputError(f"{option}: {item!r} is not {shape}", hint=f"write {option} {shape}")
    return key, value


def _python(text: str) -> dict[str, str]:
    if text.startswith("conda:"):
        return {"conda": text.removeprefix("conda:")}
    path = expanded(text)
    if "/" in text and not exists(path):
        raise InputError(
            f"--python: {text} does not exist here",
            hint="for one that only the nodes have: --set python.venv=PATH or --set python.executable=PATH",
        )
    return {"venv" if is_dir(path) else "executable": text}

"""Job file x cluster profile -> script text. Pure: only templates are read, and the same plan gives the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcjob import __version__
from hpcjob.documents.places import placed
from hpcjob.job import JobFile
from hpcjob.plan import Plan
from hpcjob.quoting import comment
from hpcjob.rendering.context import job_context
from hpcjob.rendering.shell import shell_context
from hpcjob.schedulers.requests import SUBMIT_COMMANDS
from hpcjob.templating import Loader, environment, mendable

_GIVEN = "given"  # name of a template given by its path, so that it can extend the shipped one of any name
_SOURCES_LINE = "#=sources=#\n"


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
    with placed(plan.places, JobFile.__struct_fields__), mendable(main, loader):
        context = {**job_context(plan, jobdir), **(shell_context(plan) if interactive else {})}
        text = environment(loader, scheduler).get_template(main).render(context)
    own = ", ".join(map(str, loader.own()))
    told = (f"not the shipped templates: {own}",) if own else ()
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
        lines.append("the shell of hpcjob interactive, started by its command; the directives show what is requested")
        lines.append("shellcheck disable=SC2034,SC2154")  # of what a job's steps set and use
    elif plan.profile.scheduler.account == "-g-cli":
        group = plan.account or "GROUP"
        lines.append(f"submit: {submit} -g {group} FILE   (the group is taken on the command line only)")
    else:
        lines.append(f"submit: {submit} FILE")
    return "".join(f"# {comment(line)}\n" for line in lines)

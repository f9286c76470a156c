"""Why there is nothing to show, and what else ``hpcjob tail`` says on stderr."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcjob.errors import InputError
from hpcjob.logs.filtered_view import FilteredView
from hpcjob.logs.fold import ranges
from hpcjob.logs.output import Output
from hpcjob.logs.request import Request
from hpcjob.logs.since import tells_times
from hpcjob.logs.sources import Source
from hpcjob.logs.views import LossView, View
from hpcjob.regular import size_of
from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.logs.target import Target

_NAMED = 3


def say_if_nothing(
    view: View[Any] | None, request: Request, output: Output, sources: Iterable[Source], target: Target | None = None
) -> None:
    """Say why there is nothing, on stderr: silence would look like a log without anything to tell.

    Args:
        view: None: the digest.
        target: whose job tells why a log is empty.
    """
    wanted = request.wanted
    inner = view.inner if isinstance(view, FilteredView) else view
    paths = [source.path for source in sources if source.path.is_file()]
    if paths and wanted.ranks is None and not any(map(size_of, paths)):
        known = "" if target is None else target.known_of(target.status())
        say(f"{', '.join(map(str, paths[:_NAMED]))}: empty{known}")
    elif wanted.active and not wanted.seen:
        _say_what_is_not_there(request, paths, whole=inner is not None and inner.whole is not None)
    elif isinstance(inner, LossView) and not inner.shown and request.number != 0:
        say("no iteration and no loss found (--raw shows the lines)")
    elif not output.written and request.number != 0:
        say("nothing to show" + ("" if request.view == "lines" else " (--raw shows the lines)"))


def _say_what_is_not_there(request: Request, paths: Iterable[Path], *, whole: bool) -> None:
    wanted = request.wanted
    if wanted.ranks is not None and not whole:
        check_ranks(wanted.ranks, wanted.others)
        say(f"no line of rank {ranges(wanted.ranks)}: its file is empty, or has no rank prefixes")
    elif wanted.hosts is not None:
        known = f"; there are {', '.join(sorted(wanted.other_hosts)[:8])}" if wanted.other_hosts else ""
        say(f"no line of host {', '.join(wanted.hosts)}{known}")
    elif wanted.since_s is not None:
        since = datetime.fromtimestamp(wanted.since_s).astimezone().isoformat(sep=" ", timespec="seconds")
        none = wanted.timeless and not any(map(tells_times, paths))
        what = "nothing" if wanted.pattern is None else "no such line"
        say("this log has no times, so --since finds nothing in it" if none else f"{what} since {since}")
    elif not whole:
        say("no such line")


def check_ranks(ranks: Collection[int], known: Collection[int], directory: Path | None = None) -> None:
    """Refuse ranks that the job does not have, where others tell which it has."""
    if known and not set(ranks) & set(known):
        where = "" if directory is None else f" in {directory}"
        raise InputError(f"there is no rank {ranges(ranks)}{where}", hint=f"ranks with a log: {ranges(known)}")


def say(text: str) -> None:
    """Say something on stderr."""
    tell(text, "hpcjob tail")

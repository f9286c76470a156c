"""Progress of tokenizing on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from neoxlite.common.counting import counted
from neoxlite.data.commands.options import on_terminal, say
from neoxlite.data.preprocess import Progress


@contextlib.contextmanager
def reporter(log_interval: int) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: a bar on a terminal, else a line every ``log_interval`` documents."""
    if not on_terminal():
        shown = 0

        def print_line(progress: Progress) -> None:
            nonlocal shown
            if progress.documents // log_interval > shown:
                shown = progress.documents // log_interval
                say(progress.line())

        yield print_line
        return

    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("Tokenizing", total=1.0)

        def redraw(progress: Progress) -> None:
            rate = progress.bytes_read / max(progress.seconds, 1e-9) / 1e6
            text = f"{counted(progress.documents, 'document')}, {rate:.1f} MB/s"
            bars.update(task, completed=progress.share, description=text)

        yield redraw

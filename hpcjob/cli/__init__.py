"""The start of the ``hpcjob`` command; what it consists of is `hpcjob.cli.group`."""

from __future__ import annotations

from collections.abc import Callable

from neoxlite.common.start import start


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return start(_load, argv)


def _load() -> Callable[[list[str] | None], int]:
    from hpcjob.cli.group import EXTRAS, cli
    from neoxlite.common.cli import run

    return lambda argv: run(cli, "hpcjob", argv, extras=EXTRAS, files_are_the_users=True)

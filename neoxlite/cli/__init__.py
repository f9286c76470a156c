"""The start of the ``neoxlite`` command; what it consists of is `neoxlite.cli.group`."""

from __future__ import annotations

from collections.abc import Callable

from neoxlite.common.start import start


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return start(_load, argv)


def _load() -> Callable[[list[str] | None], int]:
    from neoxlite.cli.group import EXTRAS, cli
    from neoxlite.common.cli import run

    return lambda argv: run(cli, "neoxlite", argv, EXTRAS)

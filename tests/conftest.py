"""Tiers: ``pytest`` is the fast one; ``make test`` adds real clusters and whole runs, ``make test-full`` the rest."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

CLUSTER_TESTS = Path(__file__).parent / "cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what needs more than this machine's Python, unless it is asked for by ``-m`` or by its path."""
    # A shell's background job ignores Ctrl-C, and so would the commands under test, which inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr:
        return
    asked = [(config.invocation_params.dir / name.partition("::")[0]).resolve() for name in config.args]
    left_out = ["full", "gpu"]
    if not any(path.is_relative_to(CLUSTER_TESTS) for path in asked):
        left_out.append("cluster")
    if not any(path.is_file() for path in asked):
        left_out.append("ci")
    config.option.markexpr = " and ".join(f"not {tier}" for tier in left_out)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let two of four workers begin with the tests of real clusters, which wait: one alone would be minutes late.

    Workers get equal stretches of the list (pytest-xdist, ``--dist worksteal``), the third one's begins in the middle.
    """
    on_cluster = [item for item in items if item.get_closest_marker("cluster")]
    others = [item for item in items if not item.get_closest_marker("cluster")]
    half, middle = len(on_cluster) // 2, len(items) // 2
    between = max(middle - half, 0)
    items[:] = on_cluster[:half] + others[:between] + on_cluster[half:] + others[between:]

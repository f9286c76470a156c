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

"""Tiers: plain ``pytest`` is the fast one; ``make test`` adds the real cluster, ``make test-full`` the large counts."""

from __future__ import annotations

from pathlib import Path

import pytest

CLUSTER_TESTS = Path(__file__).parent / "cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what needs more than this machine's Python, unless it is asked for by ``-m`` or by its path."""
    if config.option.markexpr:
        return
    asked = [(config.invocation_params.dir / name.partition("::")[0]).resolve() for name in config.args]
    cluster = "" if any(path.is_relative_to(CLUSTER_TESTS) for path in asked) else "not cluster and "
    config.option.markexpr = f"{cluster}not full and not gpu"

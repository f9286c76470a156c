"""What a test does where a service is missing: it is skipped with the reason; with CI=true that is a failure."""

from __future__ import annotations

import os

import pytest


def need(missing: list[str], what: str) -> None:
    """Return where nothing is missing; else end the test with what is."""
    if not missing:
        return
    reason = f"no {what} here: {', '.join(missing)}"
    if os.environ.get("CI", "").lower() in {"true", "1"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

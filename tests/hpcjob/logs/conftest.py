"""What the tests of log reading share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcjob.logs.lines import Line, LineParser

GOLDEN = Path(__file__).parents[2] / "golden" / "logs" / "log_lines.json"


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Lines that GPT-NeoX and DeeperSpeed printed, with the inputs they were printed from."""
    data: dict[str, Any] = json.loads(GOLDEN.read_text())
    return data


def line(text: str, **fields: Any) -> Line:
    """Make a line as if it had been read from the start of a file."""
    parser = LineParser(fields.pop("source", "job.log"), **fields)
    return parser.parse(0, text.encode())

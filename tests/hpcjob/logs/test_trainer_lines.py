"""Lines of many trainers: the row that each makes, or that it makes none."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hpcjob.logs.events import Checkpoint, Iteration, Validation
from hpcjob.logs.parse import parse

from .conftest import GOLDEN, line

LINES: list[dict[str, Any]] = yaml.safe_load((GOLDEN.parent / "trainer_lines.yml").read_text())


@pytest.mark.parametrize("case", LINES, ids=[str(number) for number in range(len(LINES))])
def test_a_line_of_a_trainer(case: dict[str, Any]) -> None:
    """Numbers are those of the line; a loss on held-out data is no loss of the training."""
    tells = dict(case["tells"])
    events = [event for event in parse(line(case["line"])) if isinstance(event, Iteration | Validation | Checkpoint)]
    if not tells:
        assert events == []
        return
    (event,) = events
    if "held_out_loss" in tells:
        assert isinstance(event, Validation)
        assert event.loss == tells["held_out_loss"]
        return
    assert isinstance(event, Checkpoint if tells.pop("checkpoint", False) else Iteration)
    assert {name: getattr(event, name) for name in tells} == pytest.approx(tells)

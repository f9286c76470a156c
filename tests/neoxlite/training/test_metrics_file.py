"""metrics.jsonl survives what happens to a run, and every field of it is explained."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import read_metrics, signal_to, train_rank

from neoxlite.training.metrics_file import MetricsFile

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    """A line that was cut, as by a crash of the machine, is ended before the next entry; whole ones stay."""
    path = tmp_path / "深い" / "metrics.jsonl"
    path.parent.mkdir()
    path.write_text('{"iteration": 1}\n{"iterat', encoding="utf-8")
    file = MetricsFile(path, pytest.fail)
    file.write({"iteration": 2, "text": "損失\n", "loss": float("nan"), "deep": {"x": float("inf"), "y": [1.5]}})
    file.close()
    first, torn, last = path.read_text(encoding="utf-8").splitlines()
    assert (json.loads(first), torn) == ({"iteration": 1}, '{"iterat')
    entry = json.loads(last, parse_constant=pytest.fail)
    assert entry.pop("time")
    assert entry == {"iteration": 2, "text": "損失\n", "loss": None, "deep": {"x": None, "y": [1.5]}}


def test_a_file_that_cannot_be_written_costs_one_warning(tmp_path: Path) -> None:
    """Neither a folder that is a file nor a full disk ends a training."""
    (tmp_path / "file").write_text("x")
    said: list[str] = []
    file = MetricsFile(tmp_path / "file" / "deep" / "metrics.jsonl", said.append)
    file.write({"iteration": 1})
    file.close()
    assert len(said) == 1
    assert said[0].endswith("cannot be written, training continues without it: Not a directory")
    said.clear()
    full = MetricsFile(Path("/dev/full"), said.append)
    for iteration in range(3):
        full.write({"iteration": iteration})
    assert said == ["WARNING: /dev/full cannot be written, training continues without it: No space left on device"]


@pytest.mark.ci
def test_a_killed_run_keeps_its_entries_and_the_next_one_appends(
    world: Any, config_of: Any, text_data: str, tmp_path: Path
) -> None:
    """SIGKILL in iteration 8: seven entries are there; the run that goes on from 5 says so, and appends."""
    from neoxlite.training.environment import RunFiles

    files = RunFiles(metrics=tmp_path / "metrics.jsonl")
    where = {"save": str(tmp_path / "ck"), "load": str(tmp_path / "ck"), "checkpoint_factor": 5}
    cfg = config_of(1, data_path=text_data, **where)
    with pytest.raises(AssertionError, match="died with code -9"):
        world.run(1, train_rank, cfg, files, {8: signal_to(0, signal.SIGKILL)})
    world.run(1, train_rank, cfg, files, {})
    told = [(entry.get("event"), entry["iteration"]) for entry in read_metrics(tmp_path / "metrics.jsonl")]
    first = [(None, number) for number in range(1, 8)]
    first.insert(5, ("checkpoint", 5))
    again = [(None, number) for number in range(6, 11)]
    assert told == [("start", 0), *first, ("start", 5), *again, ("checkpoint", 10)]
    starts = [entry for entry in read_metrics(tmp_path / "metrics.jsonl") if entry.get("event") == "start"]
    assert [(start["resumed"], start["checkpoint"]) for start in starts] == [
        (False, None),
        (True, str(tmp_path / "ck" / "global_step5")),
    ]


def test_every_field_is_explained(train: Any, tmp_path: Path) -> None:
    """What a run writes stands in the tables of docs/training.md."""
    page = PAGE.read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+)`", "\n".join(line for line in page.splitlines() if line.startswith("| `"))))
    run = train(2, save=str(tmp_path / "ck"), checkpoint_factor=5, eval_iters=1, wall_clock_breakdown=True)
    for entry in read_metrics(run.folder / "metrics.jsonl"):
        names = set(entry) - {"event", "iteration"} | ({entry["event"]} if "event" in entry else set())
        assert names <= explained, names - explained

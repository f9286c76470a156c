"""A log that cannot be written costs one warning on stderr, not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked_worlds import train_rank

from neoxlite.checkpoint.folder import saved_iterations
from neoxlite.training.log_stream import UnfailingStream

_LINES = """
import sys
from neoxlite.training.log_stream import unfailing_stdout
with unfailing_stdout():
    for number in range(3):
        print("line", number, flush=True)
    print("x" * 100_000)  # more than a buffer holds
    print("not flushed")
print("end", file=sys.stderr)
"""


@pytest.mark.parametrize("where", ["full", "closed pipe"])
def test_lines_that_cannot_be_written_cost_one_warning(where: str) -> None:
    """Nor does the interpreter's own flush at the end fail (code 120)."""
    if where == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
        reason = "No space left on device"
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
        reason = "Broken pipe"
    done = subprocess.run(
        [sys.executable, "-c", _LINES], stdout=descriptor, stderr=subprocess.PIPE, text=True, timeout=240, check=False
    )
    os.close(descriptor)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"WARNING: the log (standard output) cannot be written: {reason}; the run continues",
        "end",
    ]


def test_lines_after_a_failure_are_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that has room again gets the lines from then on, and none that was dropped."""
    log = tmp_path / "log"
    with log.open("w") as inner:
        stream = UnfailingStream(inner)
        kept = os.dup(inner.fileno())
        full = os.open("/dev/full", os.O_WRONLY)
        for number in range(4):
            os.dup2(full if number in (1, 2) else kept, inner.fileno())
            print("line", number, file=stream, flush=True)
        os.close(full)
        os.close(kept)
    assert log.read_text() == "line 0\nline 3\n"
    assert capsys.readouterr().err.count("WARNING") == 1


def _with_a_full_log(ranks: Any, cfg: Any, files: Any) -> Any:
    sys.stdout = Path("/dev/full").open("w")  # noqa: SIM115 - in a forked child, for its life
    outcome = train_rank(ranks, cfg, files, {})
    sys.stdout = sys.__stdout__
    return outcome


def test_a_training_with_a_full_log_saves_all_the_same(
    world: Any, config_of: Any, text_data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It runs to its end with its checkpoints, under one warning."""
    from neoxlite.training.environment import RunFiles

    cfg = config_of(1, data_path=text_data, train_iters=4, save=str(tmp_path / "ck"), checkpoint_factor=2)
    (outcome,) = world.run(1, _with_a_full_log, cfg, RunFiles())
    assert (outcome.outcome, outcome.iteration) == ("completed", 4)
    assert saved_iterations(tmp_path / "ck") == [2, 4]
    assert capfd.readouterr().err.count("No space left on device") == 1

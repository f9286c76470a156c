"""The quick start, from the first step to the last, smaller than users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci


def test_the_quickstart_from_end_to_end(own_place: Path) -> None:
    """One command collects, trains, evaluates and generates, and says what to type next.

    Six iterations on 0.2 MiB of text; the loss is compared with the n-gram models in the log.
    """
    collect = "[python, -m, neoxlite, data, collect-python, --output, runs/quickstart/text, --max-mib, '0.2']"
    smaller = {
        "steps.1.command": collect,
        "steps.5.train.set": "{train_iters: 6, log_interval: 2, checkpoint_factor: 6}",
    }
    settings = [word for key, value in smaller.items() for word in ("--set", f"{key}={value}")]
    state = {"XDG_STATE_HOME": str(own_place.parent / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "hpcjob", "submit", "jobs/quickstart.yml", "--profile", "local", "--follow", *settings],
        cwd=own_place,
        env={**os.environ, **state},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for step in (
        "clean",
        "collect",
        "tokenizer",
        "tokens to train on",
        "held-out tokens",
        "train",
        "evaluate",
        "generate",
    ):
        assert f'step "{step}" ended with code 0' in done.stdout
    assert "loss on the validation data, nats per token" in done.stdout
    assert "hpcjob tail latest --loss" in done.stdout
    (jobdir,) = (own_place / "outputs/quickstart").iterdir()
    metrics = [json.loads(line) for line in (jobdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in metrics if "lr" in line] == [2, 4, 6]
    assert (own_place / "runs/quickstart/checkpoints/latest").read_text() == "global_step6"

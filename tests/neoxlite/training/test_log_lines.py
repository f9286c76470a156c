"""The log's text against lines recorded from GPT-NeoX."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from neoxlite.training.log_lines import (
    data_wait_line,
    iteration_line,
    mean_fp32,
    memory_line,
    perplexity,
    validation_block,
)
from neoxlite.training.progress import ProgressLine, clock

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "logs" / "log_lines.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["iteration_line"], ids=lambda case: str(case["inputs"]["iteration"]))
def test_the_training_line_is_gpt_neox_s(case: dict[str, Any]) -> None:
    """Every field, conditional field and width, to the letter."""
    given = case["inputs"]
    iteration_s = given["elapsed_for_interval_s"] / given["log_interval"]
    passes = 4 if given["checkpoint_activations"] else 3
    h, layers, s = given["hidden_size"], given["num_layers"], given["seq_length"]
    flops = 24 * passes * given["train_batch_size"] * s * layers * h**2
    flops *= 1 + s / (6 * h) + given["padded_vocab_size"] / (16 * layers * h)
    per_device = flops / (iteration_s * given["world_size"])
    skipped = set(given["skipped_positions"])
    losses = [float(loss) for loss in given["losses"]]
    peak = given["peak_theoretical_tflops"]
    hfu = per_device / 1e12 / peak if peak else None
    line = iteration_line(
        iteration=given["iteration"],
        train_iters=given["train_iters"],
        samples_per_s=given["train_batch_size"] / iteration_s,
        iteration_time_ms=iteration_s * 1000,
        lr=given["learning_rate"],
        flops_per_device=per_device,
        lm_loss=mean_fp32(loss for position, loss in enumerate(losses) if position not in skipped),
        skipped=len(skipped),
        nan=sum(not math.isfinite(losses[position]) for position in skipped),
        loss_scale=given["loss_scale"] if given["precision"] == "fp16" else None,
        mfu=hfu * 3 / passes if hfu is not None else None,
        hfu=hfu,
    )
    assert line + "\n" == case["line"]


@pytest.mark.parametrize("case", GOLDEN["validation"], ids=lambda case: case["prefix"])
def test_the_validation_block_is_gpt_neox_s(case: dict[str, Any]) -> None:
    """Rules, spaces and numbers, to the letter."""
    assert validation_block(case["prefix"], case["lm_loss"]) + "\n" == case["text"]


def test_a_wait_for_data_is_told_where_it_matters() -> None:
    """From 1 % of an iteration on; GPT-NeoX's own lines stay as they are."""
    assert data_wait_line(0.9, 100.0) is None
    assert data_wait_line(25.0, 400.0) == "data wait (ms): 25.0 of 400.0 an iteration (6.2%)"
    assert data_wait_line(1.0, 0.0) is None


def test_perplexity_beyond_a_float_is_infinite() -> None:
    """A loss above 709 does not overflow into an error."""
    assert perplexity(800.0) == math.inf


def test_the_memory_line_names_each_number() -> None:
    """The line has the shape of GPT-NeoX's."""
    line = memory_line(10, {"allocated": 1.25, "max allocated": 2.0})
    assert line == "after 10 iterations memory (MB) | allocated: 1.2 | max allocated: 2.0"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals_only() -> None:
    """On a terminal the line shows the time left and is cleared; elsewhere nothing is written."""
    terminal, pipe = _Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        line = ProgressLine(10, 0, stream=stream)
        line.update(10)
        line.clear()
    assert "iteration 10/10" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == ""
    assert clock(3725) == "1:02:05"

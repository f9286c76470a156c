"""Logs written by hand, with the numbers that stand in them; shapes as GPT-NeoX and neoxlite print them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SEQUENCE_LENGTH = 2048
HEAD = f"  seq_length ...................... {SEQUENCE_LENGTH}........updated\n"


def neox_line(
    iteration: int,
    loss: str,
    *,
    lr: str = "1.000E-04",
    time_ms: str = "1170.2",
    rate: str = "27.346",
    norm: str | None = "1.250",
) -> str:
    """Return a training line; ``loss`` and the others as they shall stand in it."""
    grad = "" if norm is None else f" grad norm: {norm} |"
    return (
        f" samples/sec: {rate} | iteration {iteration:8d}/  320000 | elapsed time per iteration (ms): {time_ms} |"
        f" learning rate: {lr} | approx flops per GPU: 8.5TFLOPS | lm_loss: {loss} | loss scale: 4096.0 |{grad}"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def loaded(iteration: int) -> str:
    """Return the line about a checkpoint that was loaded."""
    return f"Loading checkpoint and starting from iteration {iteration}\n"


def saved(iteration: int, path: str = "/ckpt") -> str:
    """Return the line about a checkpoint that was saved."""
    return f"  successfully saved checkpoint at iteration {iteration} to {path}\n"


def write(path: Path, lines: Iterable[str]) -> Path:
    """Write a log that begins with the list of arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(lines), encoding="utf-8")
    return path

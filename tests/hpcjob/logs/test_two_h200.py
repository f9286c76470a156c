"""The log of a real run on two H200s, one rank of which was killed: what `tail --nccl` and `explain` make of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpcjob.cli import main

from .conftest import GOLDEN

FOLDER = GOLDEN.parent / "two_h200"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main([*words, str(FOLDER)])
    return capsys.readouterr().out


def test_nccl(capsys: pytest.CaptureFixture[str]) -> None:
    """One host, both ranks, the version that torch 2.11 brings, NVLink between the GPUs, both communicators whole."""
    events: list[dict[str, Any]] = [json.loads(text) for text in said(capsys, "tail", "--nccl", "--json").splitlines()]
    communicators = [event for event in events if event["event"] == "communicator"]
    assert [(event["size"], event["ready"]) for event in communicators] == [(2, 2), (2, 2)]
    text = said(capsys, "tail", "--nccl")
    (row,) = (line.split() for line in text.splitlines() if line.split()[:2] == ["host", "node01"])
    assert row[2:8] == ["0-1", "2.28.9+cuda13.0", "Socket", "off", "P2P/CUMEM", "24"]
    assert "NCCL_NVLS_ENABLE=0 is set" in text


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL of rank 1 at iteration 76, 26 behind the checkpoint; symbols that NCCL does without are no fault."""
    verdict = json.loads(said(capsys, "explain", "--json"))
    assert (verdict["code"], verdict["ranks"], verdict["host"]) == (67, [1], "node01")
    assert "signal 9 (SIGKILL)" in verdict["cause"]
    assert (verdict["last_iteration"], verdict["last_checkpoint"]) == (76, 50)
    assert verdict["others"] == ["rank 0 lost the other ranks: rank 1 has ended"]

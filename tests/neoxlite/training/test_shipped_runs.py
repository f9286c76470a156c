"""The shipped 2.7B runs with a small width, for real: eight processes under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forked_worlds import read_metrics, train_rank

from tests.neoxlite.training.small_shipped import small_run

CONFIGS = Path(str(resources.files("neoxlite") / "configs"))
SMALL = small_run(4)


def _single_process(world: Any, keys: dict[str, Any], accumulation: int, tmp_path: Path) -> Any:
    """Train the same model and batch in one process and return its metrics."""
    from neoxlite.config import load_config
    from neoxlite.training.environment import RunFiles

    overrides = {**keys, "gradient_accumulation_steps": accumulation}
    cfg = load_config([str(CONFIGS / "2-7B.yml")], overrides=overrides, world_size=1)
    files = RunFiles(metrics=tmp_path / "alone.jsonl")
    world.run(1, train_rank, cfg, files, {})
    return _iterations(files.metrics)


def _iterations(metrics: Path) -> list[dict[str, Any]]:
    """Return the iterations of a metrics.jsonl, without events: eight ranks on two cores are slow now and then."""
    return [entry for entry in read_metrics(metrics) if "event" not in entry]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("run", "lines", "accumulation"),
    [
        ("2.7B-1node-dp8", ["RANK=0 STAGE=0 LAYERS=37 [0, 37)"], 8),
        ("2.7B-1node-dp4-pp2", ["RANK=0 STAGE=0 LAYERS=18 [0, 18)", "RANK=4 STAGE=1 LAYERS=19 [18, 37)"], 4),
    ],
)
def test_a_shipped_run_of_eight_ranks_follows_one_process(
    run: str, lines: list[str], accumulation: int, world: Any, text_data: str, tmp_path: Path
) -> None:
    """Its own files, width and data apart: 32 blocks on eight gloo ranks lose what one process loses, to 1e-5."""
    keys = {**SMALL, "data_path": text_data}
    (tmp_path / "small.yml").write_text(yaml.safe_dump({"data_path": text_data}))
    metrics = tmp_path / "metrics.jsonl"
    assignments = [
        f"--set={key}={yaml.safe_dump(value, default_flow_style=True).split(chr(10))[0]}"
        for key, value in SMALL.items()
    ]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8", "-m", "neoxlite"),
            *("train", str(CONFIGS / "2-7B.yml"), str(CONFIGS / "runs" / f"{run}.yml"), str(tmp_path / "small.yml")),
            *assignments,
        ],
        env={**os.environ, "NEOXLITE_METRICS_FILE": str(metrics), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(line in done.stdout for line in lines), done.stdout[-3000:]
    got = _iterations(metrics)
    alone = _single_process(world, keys, accumulation, tmp_path)
    for number in ("loss", "grad_norm"):
        np.testing.assert_allclose(
            [entry[number] for entry in got], [entry[number] for entry in alone], rtol=1e-5, atol=0
        )

"""The arithmetic of benchmarks/gpu/numerics.py and fp8.py: differences paired by seed, and what they decide."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "gpu"))

import curves
from paired import Paired

SLEEP = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
"""Hours of sleep gained by ten patients, one medicine less the other (Student 1908, table I)."""


def test_interval_is_students() -> None:
    """R's t.test(extra ~ group, sleep, paired): mean 1.58, 95 % of it from 0.7001142 to 2.4598858, t = 4.0621."""
    gained = Paired(SLEEP)
    assert gained.mean == pytest.approx(1.58)
    assert gained.mean - gained.reach == pytest.approx(0.7001142, abs=1e-3)
    assert gained.mean + gained.reach == pytest.approx(2.4598858, abs=1e-3)
    assert gained.mean / gained.error == pytest.approx(4.0621, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.001], "+0.100% (n=1): one run decides nothing"),
        ([0.001, -0.001], "no difference seen, undecided whether within 0.5%: about 3 seeds would tell"),
        ([0.001, -0.001, 0.0, 0.0005, -0.0005], "no difference seen, within 0.5%"),
        ([0.002, 0.0021, 0.0022], "higher, within 0.5%"),
        ([-0.01, -0.0102, -0.0101], "lower, beyond 0.5%"),
        ([0.005, 0.0051, 0.0049], "higher, undecided whether within 0.5%: not by 40 seeds"),
    ],
)
def test_verdict(values: list[float], said: str) -> None:
    assert Paired(values).verdict(0.005).endswith(said)


def test_runs_are_paired_by_seed_wherever_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Curves of several files are shown together, the longer of two; a skipped step is left out of both."""
    rows = curves.of_seeds(["125M:32:plain", "125M:32"], [1, 2])
    assert rows == ["125M:32:plain:seed=1", "125M:32:seed=1", "125M:32:plain:seed=2", "125M:32:seed=2"]
    (tmp_path / "a").write_text(json.dumps({rows[0]: curve([9, 2, 4]), "125M:seed=1:32": curve([None, 2, 4.06])}))
    (tmp_path / "b").write_text(json.dumps({rows[2]: curve([5, 5]), rows[3]: curve([5, 5.1]), rows[0]: curve([1])}))
    curves.show(curves.known([tmp_path / "a", tmp_path / "b", tmp_path / "none"]), "125M:32:plain", 0.05)
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == (
        "125M:32 beside 125M:32:plain: +1.000% +- 0.000% (n=2, one scatters by 0.000%; 95 %: +1.000% to +1.000%): "
        "higher, within 5.0%"
    )


def curve(losses: list[float | None]) -> curves.Curve:
    return curves.Curve(losses=losses, tokens_per_s=1.0)

"""Failures of the field and the table of symptoms: each has its class, its cause and its rule."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml

from hpcjob.logs.explain import gather_stream
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.rulebook import Rulebook, load, load_errors

from .conftest import GOLDEN, line

FIELD: list[dict[str, Any]] = yaml.safe_load((GOLDEN.parent / "field.yml").read_text())
KNOWLEDGE: dict[int, dict[str, Any]] = yaml.safe_load((GOLDEN.parent / "knowledge.yml").read_text())
ROWS = 68


def verdict_of(text: str) -> Verdict:
    return judge(gather_stream(io.BytesIO(text.encode()), "log"))


@pytest.mark.parametrize("case", FIELD, ids=[case["name"] for case in FIELD])
def test_field(case: dict[str, Any]) -> None:
    """Further documented failures end in the class that was written beside them, with a fix."""
    verdict = verdict_of(case["log"])
    assert verdict.code == case["code"], verdict
    for field in ("rank", "host"):
        if field in case:
            assert getattr(verdict, field) == case[field], verdict
    assert case.get("cause", "") in verdict.cause
    assert case.get("fix", "") in (verdict.fix or "")
    assert verdict.fix or not verdict.code, verdict


def test_enough_of_the_field() -> None:
    """Each case names where it comes from, no two are called alike."""
    names = [case["name"] for case in FIELD]
    assert len(names) == len(set(names)) >= 60
    assert all(case["source"] for case in FIELD)


@pytest.mark.parametrize("row", range(1, ROWS + 1))
def test_knowledge(row: int) -> None:
    """Each row of the table of symptoms is covered by a rule, or by a verdict, or says why nothing can."""
    known = KNOWLEDGE[row]
    if "none" in known:
        assert known["none"]
        return
    if "verdict" in known:
        assert verdict_of(known["log"]).code == known["verdict"]
        return
    books = (load_errors(), load("nccl", "nccl_topology"))
    rule = next(found for book in books if (found := book.rule(known["rule"])) is not None)
    assert rule.match
    assert rule.reject or rule.role in ("info", "warning")
    for text in known["lines"]:
        assert known["rule"] in {finding.rule for book in books if (finding := book.find(line(text))) is not None}, text


def test_which_rows_nothing_covers() -> None:
    """Rows that leave nothing in a log, by number, so that a new one is noticed."""
    assert KNOWLEDGE.keys() == set(range(1, ROWS + 1))
    assert [row for row, known in KNOWLEDGE.items() if "none" in known] == [33, 44, 46, 54, 62, 67]


@pytest.mark.parametrize(
    ("banner", "error", "words"),
    [
        ("NCCL version 2.18.6+cuda12.1", "Call to ibv_modify_qp failed with error Invalid argument", "Set NCCL_IB_GID"),
        ("NCCL version 2.27.7+cuda12.9", "Call to ibv_modify_qp failed with 22 Invalid argument, on dev x", "Unset"),
        (
            "NCCL version 2.10.3+cuda11.3",
            "NET/IB : Got completion from peer 10.0.0.2<1> with error 12, opcode",
            "half a",
        ),
        ("NCCL version 2.21.5+cuda12.4", "NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode", "8 s"),
        ("NCCL version 2.28.3+cuda13.0", "NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode", "30 s"),
        ("NCCL version 2.25.1+cuda12.8", "Cuda failure 801 'operation not supported'", "NCCL_CUMEM_HOST_ENABLE=0"),
        ("NCCL version 2.28.3+cuda13.0", "Failed to bind NVLink SHARP (NVLS) Multicast memory", "NCCL 2.29"),
    ],
)
def test_fixes_by_version(banner: str, error: str, words: str) -> None:
    """What to do depends on the NCCL of the job (defaults and faults by version: NCCL's tagged sources)."""
    start = "node01:1:1 [0] NCCL INFO "
    verdict = verdict_of(f"{start}{banner}\nnode01:1:2 [0] x.cc:1 NCCL WARN {error}\n")
    assert words in (verdict.fix or ""), verdict


@pytest.mark.parametrize(("version", "words"), [("2.4.0", "TORCH_NCCL_TRACE_BUFFER_SIZE"), ("2.9.1", "TORCH_FR_")])
def test_fixes_by_version_of_torch(version: str, words: str) -> None:
    """PyTorch renamed the flight recorder's variables in 2.9."""
    verdict = verdict_of(f"PyTorch version: {version}+cu124\nStack trace of the failed collective not found, x\n")
    assert (verdict.fix or "").startswith(f"Next time {words}")


def test_versions_of_a_rule_are_checked() -> None:
    """A condition names a software and a comparison that exist."""
    from hpcjob.logs.versions import Condition

    for text in ("nccl 2.21", "windows >= 11", "nccl >= ", "from NCCL 2.22"):
        with pytest.raises(ValueError, match=r"not a condition|none of"):
            Condition(text)
    assert Condition("nccl >= 2.21, nccl < 2.27").holds({"nccl": "22304"})
    assert Condition("nccl == 2.21").holds({"nccl": "2.21.5+cuda12.4"})
    assert not Condition("nccl >= 2.21").holds({"torch": "2.4"})
    assert isinstance(load_errors(), Rulebook)

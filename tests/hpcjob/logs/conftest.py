"""What the tests of log reading share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.logs.lines import Line, LineParser

GOLDEN = Path(__file__).parents[2] / "golden" / "logs" / "log_lines.json"

HPCJOB = [sys.executable, "-c", "import sys; from hpcjob.cli import main; sys.exit(main(sys.argv[1:]))"]
SEQUENCE = "  seq_length ...................... 2048........updated\n"


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """Lines that GPT-NeoX and DeeperSpeed printed, with the inputs they were printed from."""
    data: dict[str, Any] = json.loads(GOLDEN.read_text())
    return data


def line(text: str, **fields: Any) -> Line:
    """Make a line as if it had been read from the start of a file."""
    parser = LineParser(fields.pop("source", "job.log"), **fields)
    return parser.parse(0, text.encode())


@pytest.fixture
def folder(tmp_path: Path, golden: dict[str, Any]) -> Path:
    """A job directory with a Japanese name: job log, scheduler's output, two ranks, NCCL's files."""
    path = tmp_path / "実験 1"
    path.mkdir()
    with (path / "12_job.out").open("w", encoding="utf-8") as file:
        file.write("検査: 2 nodes ok\n" + SEQUENCE)
        file.writelines(case["lines"][0] + "\n" for case in golden["steps_line"])
        file.writelines(case["line"] for case in golden["iteration_line"])
        file.writelines(case["text"] for case in golden["validation"])
    (path / "12_sched.out").write_text("=>> PBS: job killed: walltime 3610 exceeded limit 3600\n")
    for rank in (0, 1):
        (path / f"12_{rank}_log.out").write_text(f"one of {rank}\ntwo of {rank}\n")
        (path / f"nccl.node01.{rank}.log").write_text(
            f"node01:{rank}:9 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
            f"node01:{rank}:9 [0] NCCL INFO comm 0x7f rank {rank} nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
        )
    return path


def tail(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[str]:
    """Run ``hpcjob tail`` and return the lines of its output."""
    assert main(["tail", *map(str, arguments)]) == code
    return capsys.readouterr().out.splitlines()

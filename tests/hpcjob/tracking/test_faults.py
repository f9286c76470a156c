"""Three of ten commands of PBS and PJM fail, hang, answer with garbage, nothing or half: nothing false is concluded."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.emulators import Emulator, faults
from tests.emulators.emulator import COMMANDS
from tests.hpcjob.jobs import plan_for, with_path
from tests.hpcjob.tracking.faulty import check_submissions, end_all, poll_while_they_end, submit_many

DIRECTIVES = {
    "pbs": "#PBS -N x -j oe -k oed -o JOBDIR/sched.out",
    "pjm": "#PJM -N x -j\n#PJM -L rscgrp=small\n#PJM -o JOBDIR/%j_sched.out",
}
SIZES = [
    pytest.param(20, 100, id="20 submissions"),
    pytest.param(200, 1000, id="200 submissions", marks=[pytest.mark.full, pytest.mark.timeout(3600)]),
]
System = Literal["pbs", "pjm"]


@pytest.fixture(params=["pbs", "pjm"])
def emulator(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulated system, its commands behind ones that fail."""
    system: System = request.param
    emulator = Emulator(tmp_path / "cluster", system)
    monkeypatch.setenv("PATH", with_path(emulator.bin))
    monkeypatch.setattr(subprocess, "Popen", faults.Impatient)
    faulty = faults.put_faults(tmp_path / "faults", COMMANDS[system], seed=7)
    monkeypatch.setenv("PATH", with_path(faulty))
    yield emulator
    emulator.end()


@pytest.mark.ci
@pytest.mark.parametrize(("submissions", "polls"), SIZES)
def test_nothing_false_is_concluded(emulator: Emulator, tmp_path: Path, submissions: int, polls: int) -> None:
    """No job twice, none lost, no end that has not come or is another; without the faults, every end is told."""
    system = emulator.machine.folder.name
    folder = tmp_path / "faults"
    faults.start(folder)
    plan = plan_for(system)
    came = submit_many(plan, submissions, DIRECTIVES[system], sleep=lambda _: None)
    numbers = emulator.jobs
    suffix = ".pbs1" if system == "pbs" else ""
    scripts = {f"{number}{suffix}": (emulator.machine.folder / number / "script").read_text() for number in numbers}
    check_submissions(came, scripts)
    assert len(came.accepted) > submissions / 2
    print(came)

    poll_while_they_end(came, polls, lambda record: emulator.jobs[record.id.partition(".")[0]]["state"] == "ended")
    faults.stop(folder)
    end_all(came, 240)

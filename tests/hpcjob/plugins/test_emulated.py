"""submitit on PBS and PJM, whose commands are emulated: functions submitted, watched, cancelled and taken up again."""

from __future__ import annotations

import pytest

from hpcjob.plugins import job as job_module
from tests.hpcjob.plugins import acts, functions
from tests.hpcjob.plugins.conftest import SYSTEMS, MakePlace

pytestmark = pytest.mark.parametrize("system", SYSTEMS)


def test_result(place: MakePlace, system: str) -> None:
    """A function of a module, with its arguments, comes back with its result."""
    here = place(system, banner="Maintenance on 12/25: 123 nodes")
    job = here.executor.submit(functions.add, 1, 2)
    assert job.result() == 3
    assert len(here.emulator.jobs) == 1


@pytest.mark.ci
def test_what_submitit_promises(place: MakePlace, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acts; nobody waits long for a pickle that never comes."""
    monkeypatch.setattr(job_module, "_LATE_S", 10_000.0)
    every = (acts.results, acts.exceptions, acts.array, acts.cancelled, acts.checkpointed, acts.timed_out)
    acts.together(place(system).executor, *every)

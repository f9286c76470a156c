"""The elements of an array on this machine, told by the files that they and their array leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.schedulers import local_elements
from hpcjob.schedulers.base import JobRef, Report
from hpcjob.states import State


@pytest.mark.parametrize(
    ("code", "state"), [(None, State.COMPLETING), ("", State.COMPLETING), ("124\n", State.TIMEOUT), ("143\n", None)]
)
def test_an_end_that_the_array_has_not_seen_is_none(tmp_path: Path, code: str | None, state: State | None) -> None:
    """Only the array learns from timeout(1), by its code 124, that the walltime was over: the record says TERM."""
    element = tmp_path / "3"
    element.mkdir()
    (element / "5_3_exit.json").write_text('{"code": 143, "signal": "TERM", "time": "2026-12-01T00:00:00+00:00"}')
    if code is not None:
        (tmp_path / "3.code").write_text(code)
    ref = JobRef("5_3", element, array="5", index=3)
    told = local_elements.report(ref, Report(State.RUNNING))
    assert (None if told is None else told.state) is state
    if state is State.COMPLETING:
        assert local_elements.report(ref, Report(State.FAILED)) is None, "its array is gone: the record is all"


def test_an_element_of_another_machine_is_known_by_its_record_alone(tmp_path: Path) -> None:
    """Which process runs it says nothing here; nor has what an earlier script started left a code."""
    element = tmp_path / "3"
    element.mkdir()
    ref, elsewhere = JobRef("5_3", element, array="5", index=3), Report(State.UNKNOWN, reason="was started on node01")
    assert local_elements.report(ref, elsewhere) == elsewhere
    (element / "5_3_pid").write_text("999999999 1")
    assert local_elements.report(ref, elsewhere) == elsewhere
    (element / "5_3_exit.json").write_text('{"code": 0, "signal": null, "time": "2026-12-01T00:00:00+00:00"}')
    assert local_elements.report(ref, elsewhere) is None

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

"""What an array's elements come to, how an element is named, and which arrays the index takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcjob.errors import UnknownJobError
from hpcjob.states import State
from hpcjob.tracking.array_status import combined
from hpcjob.tracking.index import append, read_index, state_dir
from hpcjob.tracking.lookup import elements, find_job
from hpcjob.tracking.records import Record
from hpcjob.tracking.status import Source, Status


def array(spec: str = "0-3", job_id: str = "5", name: str = "many", scheduler: str = "slurm") -> Record:
    """Return the record of an array."""
    return Record(
        profile="lab",
        scheduler=scheduler,
        server="",
        id=job_id,
        submitted="2025-11-29T12:00:00.000000+00:00",
        name=name,
        directory=f"/work/{job_id}",
        array=spec,
    )


def of(*states: str, source: Source = "queue") -> Status:
    """Return the status of an array whose elements have these states, and exit codes after a colon."""
    made = {}
    for index, text in enumerate(states):
        word, _, code = text.partition(":")
        made[index] = Status(State(word), int(code) if code else None, None, source)
    return combined(made)


@pytest.mark.parametrize(
    ("states", "state", "code", "job_code"),
    [
        (["COMPLETED:0", "COMPLETED:0"], "COMPLETED", 0, 0),
        (["COMPLETED:0", "RUNNING", "FAILED:3"], "RUNNING", None, 1),
        (["COMPLETED:0", "PENDING"], "PENDING", None, 1),
        (["FAILED:1", "FAILED:3", "COMPLETED:0"], "FAILED", 3, 3),
        (["FAILED:1", "TIMEOUT:85", "COMPLETED:0"], "FAILED", 1, 1),
        (["COMPLETED:0", "TIMEOUT:85"], "TIMEOUT", 85, 85),
        (["CANCELLED", "TIMEOUT:143", "COMPLETED:0"], "TIMEOUT", 143, 143),
        (["TIMEOUT:85", "TIMEOUT"], "TIMEOUT", None, 1),
        (["CANCELLED:86", "CANCELLED"], "CANCELLED", 86, 86),
        (["CANCELLED", "COMPLETED:0"], "CANCELLED", None, 1),
        (["FAILED", "COMPLETED:0"], "FAILED", None, 1),
        (["UNKNOWN", "COMPLETED:0"], "UNKNOWN", None, 1),
        (["UNKNOWN", "RUNNING"], "RUNNING", None, 1),
    ],
)
def test_combined(states: list[str], state: str, code: int | None, job_code: int) -> None:
    """Alive while one is; unknown while one is; then the worst, and the largest code."""
    status = of(*states)
    assert (status.state, status.exit_code, status.job_code) == (State(state), code, job_code)


def test_the_words_name_what_went_wrong() -> None:
    """Indices of failures are named, the first of very many; what is well is counted."""
    assert of("COMPLETED:0", "FAILED:1", "RUNNING", "FAILED:1").reason == "1 RUNNING, 2 FAILED (1,3), 1 COMPLETED"
    assert of(*["FAILED:1"] * 20, "COMPLETED:0").reason == "20 FAILED (0-7, ...), 1 COMPLETED"
    assert of(*["COMPLETED:0"] * 3).reason == "all 3 elements"


def test_absent_elements_may_have_been_cancelled() -> None:
    """Only where every unknown one is surely not in the queue does a cancelled array end."""
    assert of("UNKNOWN", "COMPLETED:0", source="absent").source == "absent"
    assert of("UNKNOWN", "COMPLETED:0", source="none").source == "none"


def test_names_of_elements(here: Path) -> None:
    """ID_7, NAME_7, latest_7, ID[7], and PBS's ID[7].server; each is a job with a folder of its own."""
    append(array("3-9:3", "7.pbs1", scheduler="pbs"))
    append(array(name="run_3"))
    for text in ("7.pbs1_6", "7_6", "many_6", "7[6]", "7[6].pbs1"):
        found = find_job(text)
        assert (found.id, found.name, found.directory, found.index) == ("7.pbs1_6", "many_6", "/work/7.pbs1/6", 6)
        assert (found.ref.array, found.ref.task, found.ref.jobdir) == ("7.pbs1", 6, Path("/work/7.pbs1/6"))
    for text in ("7[]", "7[].pbs1", "7.pbs1", "7"):
        assert find_job(text).array == "3-9:3"
    assert find_job("run_3").id == "5", "a name goes before an element"
    assert find_job("run_3_3").id == "5_3"
    assert [one.id for one in elements(find_job("7"))] == ["7.pbs1_3", "7.pbs1_6", "7.pbs1_9"]
    with pytest.raises(UnknownJobError, match="has no element 4") as caught:
        find_job("7_4")
    assert caught.value.hint == "its elements: 3-9:3"


@pytest.mark.parametrize("spec", ["", "x", "0-99999999", "3-1", "1;2"])
def test_damaged_arrays(here: Path, spec: str) -> None:
    """A line whose array is none is left out and counted, as any damaged line."""
    append(array())
    (file,) = state_dir().glob("*.jsonl")
    with file.open("a") as stream:
        stream.write(file.read_text().replace('"array":"0-3"', f'"array":"{spec}"').replace('"id":"5"', '"id":"6"'))
    index = read_index()
    assert ([one.id for one in index.records], sum(index.damaged.values())) == (["5"], 1)

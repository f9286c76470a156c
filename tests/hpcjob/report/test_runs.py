"""Attempts become runs: checked against a simulated training that crashes and goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcjob.report.attempts import Attempt, Log
from hpcjob.report.collect import gather
from hpcjob.report.named import load_runs
from hpcjob.report.quantities import COLUMN, WIDTH
from hpcjob.report.runs import between, make_run
from hpcjob.report.tables import Builder
from hpcjob.tracking.index import append
from hpcjob.tracking.records import Record
from tests.hpcjob.report.written import loaded, neox_line, saved, write


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Attempt], dict[int, float]]:
    """A training that saves every few iterations, crashes, and goes on from its newest checkpoint or an older one.

    Returns:
        What its attempts logged, and the loss of each iteration in the weights that it ends with.
    """
    every = draw(st.integers(1, 7))
    truth: dict[int, float] = {}
    checkpoints: dict[int, dict[int, float]] = {0: {}}
    attempts = []
    for number in range(draw(st.integers(1, 6))):
        start = max(checkpoints) if draw(st.integers(0, 3)) else draw(st.sampled_from(sorted(checkpoints)))
        checkpoints = {step: past for step, past in checkpoints.items() if step <= start}
        truth = dict(checkpoints[start])
        builder = Builder()
        for step in range(start + 1, start + draw(st.integers(1, 30)) + 1):
            loss = number * 1000.0 + step
            values: list[float | None] = [None] * WIDTH
            values[COLUMN["loss"]] = loss
            builder.append(step, values)
            truth[step] = loss
            if step % every == 0:
                checkpoints[step] = dict(truth)
        attempts.append(Attempt(builder.table(), start=start or None))
    return attempts, truth


@given(histories())
@settings(max_examples=100, deadline=None)
def test_the_iterations_that_count(history: tuple[list[Attempt], dict[int, float]]) -> None:
    """Each iteration has the loss that led to the final weights, whatever was done again or thrown away."""
    attempts, truth = history
    run = make_run("run", Log(attempts))
    steps, losses = run.table.series("loss")
    assert dict(zip(steps.tolist(), losses.tolist(), strict=True)) == truth
    assert [restart.at for restart in run.restarts] == [attempt.start or 0 for attempt in attempts[1:]]


def test_a_failed_restart_in_between() -> None:
    """An attempt from an older checkpoint that came nowhere does not hide what the next one goes on from."""
    text = "".join(neox_line(i, f"{i}.5") for i in range(10, 101, 10)) + saved(50) + saved(90)
    text += loaded(50) + neox_line(60, "60.25") + loaded(90) + neox_line(100, "100.75")
    from tests.hpcjob.report.test_collect import of

    run = make_run("run", of(text))
    assert run.table.series("loss")[1].tolist() == [*(i + 0.5 for i in range(10, 91, 10)), 100.75]
    assert [restart.at for restart in run.restarts] == [50, 90]


def test_part_of_a_run() -> None:
    """The ends of the range belong to it; marks outside go."""
    from tests.hpcjob.report.test_collect import of

    run = make_run("run", of("".join(neox_line(i, "2.0") + saved(i) for i in (10, 20, 30, 40))))
    part = between(run, 20, 30)
    assert (part.table.steps.tolist(), part.checkpoints) == ([20, 30], [20, 30])
    assert between(run, 25, None).table.steps.tolist() == [30, 40]


def test_files_are_runs_of_their_own(here: Path) -> None:
    """Logs that say nothing of each other are compared; the same file twice is one."""
    for name, first in (("a", 10), ("b", 50)):
        write(here / f"{name}.log", [neox_line(i, "2.0") for i in range(first, first + 30, 10)])
    assert [run.name for run in load_runs(["a.log", "b.log", "a.log"])] == ["a", "b"]
    (merged,) = load_runs(["a.log", "b.log"], merge=True)
    assert (merged.name, merged.table.steps.tolist()) == ("b", [10, 20, 30, 50, 60, 70])


def test_files_that_say_where_they_go_on(here: Path) -> None:
    """A log that loads what another saved, from the same folder, goes on with its run."""
    write(here / "1.log", [neox_line(10, "1.5"), neox_line(20, "2.5"), "saved checkpoint at iteration 10 to /c/x\n"])
    write(here / "2.log", [" successfully loaded checkpoint from /c/x at iteration 10\n", neox_line(20, "2.25")])
    write(here / "3.log", [" successfully loaded checkpoint from /c/other at iteration 10\n", neox_line(20, "9.5")])
    load = "  successfully loaded /c/x/global_step20/mp_rank_00_model_states.pt\n" + loaded(20)  # as GPT-NeoX says it
    write(here / "4.log", [load, neox_line(30, "3.125")])
    first, other = load_runs(["*.log"])
    assert (first.table.series("loss")[1].tolist(), [one.at for one in first.restarts]) == (
        [1.5, 2.25, 3.125],
        [10, 20],
    )
    assert (other.name, len(load_runs(["*.log"], merge=False))) == ("3", 4)


def test_names_that_meet(here: Path) -> None:
    """Files of one name in several folders are told apart by the folder."""
    for folder in ("x", "y"):
        write(here / folder / "log.txt", [neox_line(10, "2.0")])
    assert [run.name for run in load_runs(["x/log.txt", "y/log.txt"])] == ["x/log.txt", "y/log.txt"]


def _job(here: Path, number: int, name: str, lines: list[str]) -> None:
    folder = here / f"outputs-{number}"
    write(folder / f"{number}_job.out", lines)
    record = Record(
        profile="lab",
        scheduler="slurm",
        server="",
        id=str(number),
        submitted=f"2026-11-29T12:00:{number:02d}.000000+00:00",
        name=name,
        directory=str(folder),
    )
    append(record)


def test_jobs_of_one_run(here: Path) -> None:
    """A job that went on brings the earlier jobs of its name; another run of the name, and other names, stay out."""
    _job(here, 1, "実験", [neox_line(10, "9.0"), neox_line(20, "9.0")])  # another run, from the beginning too
    _job(here, 2, "実験", [neox_line(10, "1.5"), neox_line(20, "2.5"), neox_line(30, "3.5")])
    _job(here, 3, "other", [neox_line(20, "7.0")])
    _job(here, 4, "実験", [loaded(20), neox_line(30, "3.25"), neox_line(40, "4.25")])
    _job(here, 5, "実験", [loaded(40), neox_line(50, "5.125")])
    for word in ("5", "実験"):
        (run,) = load_runs([word])
        assert run.table.series("loss")[1].tolist() == [1.5, 2.5, 3.25, 4.25, 5.125]
        assert [(one.at, one.repeated) for one in run.restarts] == [(20, 10), (40, 0)]
    (alone,) = load_runs(["5"], merge=False)
    assert alone.table.steps.tolist() == [50]
    assert [run.name for run in load_runs(["5", "3"])] == ["実験", "other"]


def test_elements_of_an_array(here: Path) -> None:
    """Each element of an array is a run; one that went on goes on from the element of the same index."""
    for number, submitted, start in ((7, 1, 0), (8, 2, 20)):
        folder = here / f"outputs-{number}"
        record = Record(
            profile="lab",
            scheduler="slurm",
            server="",
            id=str(number),
            submitted=f"2026-11-29T12:00:{submitted:02d}.000000+00:00",
            name="sweep",
            directory=str(folder),
            array="0-1",
        )
        append(record)
        for index in (0, 1):
            rows = [neox_line(start + step, f"{number}.{index}") for step in (10, 20)]
            element = record.element(index)
            write(element.jobdir / f"{element.id}_job.out", [loaded(start), *rows] if start else rows)
    runs = load_runs(["8"])
    assert [run.name for run in runs] == ["sweep_0", "sweep_1"]
    assert [run.table.series("loss")[1].tolist() for run in runs] == [[7.0, 7.0, 8.0, 8.0], [7.1, 7.1, 8.1, 8.1]]
    assert [run.name for run in load_runs(["8_1"])] == ["sweep_1"]


@pytest.mark.parametrize("count", [0, 1])
def test_few_rows(count: int) -> None:
    """No row and one row are runs too."""
    run = make_run("run", gather(iter(())) if not count else _one())
    assert (len(run.table), run.restarts) == (count, [])
    assert np.array_equal(run.attempts, np.ones(count))


def _one() -> Log:
    from tests.hpcjob.report.test_collect import of

    return of(neox_line(10, "2.0"))

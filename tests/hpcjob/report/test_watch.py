"""The live screen, driven by keys, over real jobs of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.states import State
from hpcjob.tracking.exit_record import read_exit_record
from tests.hpcjob.jobs import submit_local
from tests.hpcjob.report.written import neox_line

screen = pytest.importorskip("hpcjob.report.screen", reason="textual is not installed")

dialogs = pytest.importorskip("hpcjob.report.dialogs")
WorkerCancelled = pytest.importorskip("textual.worker").WorkerCancelled

PATIENCE_S = 240.0
NAME = "実験 [@click=app.bell]x[/] [red]"


class Noted(screen.WatchApp):  # type: ignore[misc, name-defined]
    """The screen, whose messages are kept: they are shown for seconds only."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.said: list[str] = []

    def notify(self, message: str, **options: Any) -> None:
        """Show a message, and keep it."""
        self.said.append(message)
        super().notify(message, **options)


async def until(pilot: Any, true: Callable[[], Any]) -> None:
    """Wait until something holds that threads of the screen bring about."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await pilot.pause(0.05)


def drive(scene: Callable[[Any, Any], Awaitable[None]], *names: str) -> None:
    """Open the screen, play a scene, and close it."""

    async def played() -> None:
        app = Noted(names, interval_s=1.0)
        async with app.run_test(size=(120, 40)) as pilot:
            await scene(app, pilot)
            with contextlib.suppress(WorkerCancelled):  # where a look takes long the next one replaces it
                await app.workers.wait_for_complete()

    asyncio.run(played())


def lines_of(app: Any) -> list[str]:
    return [strip.text.rstrip() for strip in app.query_one("#log").lines]


def cells(app: Any) -> list[list[str]]:
    table = app.query_one("#jobs")
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


@pytest.mark.ci
def test_no_jobs() -> None:
    """An empty screen says so, and no key does harm."""

    async def scene(app: Any, pilot: Any) -> None:
        await until(pilot, lambda: "no jobs wait or run" in str(app.query_one("#progress").render()))
        await pilot.press("e", "c", "t", "t", "escape", "a", "r")
        assert app.chosen is None

    drive(scene)


@pytest.mark.ci
def test_jobs_losses_and_log(here: Path) -> None:
    """A running job's state, progress and lines come by themselves; its name is text, whatever it looks like."""
    go = here / "go"
    body = "".join(f"echo '{neox_line(i, f'{i}.5').strip()}'\n" for i in (1, 2, 3))
    body += f"while [ ! -e {go} ]; do sleep 0.05; done\necho '{neox_line(4, 'nan').strip()}'\nexit 3"
    record = submit_local(body, name=NAME)

    async def scene(app: Any, pilot: Any) -> None:
        await until(pilot, lambda: app.chosen and len(app.chosen.progress.losses) == 3)
        await until(pilot, lambda: len(lines_of(app)) == 3)
        await until(pilot, lambda: [row[:4] for row in cells(app)] == [[record.id, NAME, "local", "RUNNING"]])
        await until(pilot, lambda: list(app.query_one("#losses").data) == [0.0, 1.0, 2.0])
        assert [float(line.split("lm_loss: ")[1].split()[0]) for line in lines_of(app)] == [1.5, 2.5, 3.5]
        go.touch()
        await until(pilot, lambda: cells(app)[0][3] == "FAILED")
        await until(pilot, lambda: len(lines_of(app)) == 4)
        await until(pilot, lambda: "NOT FINITE" in str(app.query_one("#progress").render()))
        await until(pilot, lambda: cells(app)[0][5].startswith("4/320000, loss NOT FINITE"))
        await pilot.press("t")
        assert not app.query_one("#jobs").display
        assert len(lines_of(app)) == 4
        await pilot.press("escape")
        assert app.query_one("#jobs").display

    drive(scene)


@pytest.mark.ci
def test_cancel_asks_first(here: Path) -> None:
    """No, Escape and Enter leave the job alone; y ends it, and the screen says how."""
    record = submit_local("echo started; sleep 300", name="victim")

    async def scene(app: Any, pilot: Any) -> None:
        await until(pilot, lambda: app.chosen and app.chosen.status.state is State.RUNNING and lines_of(app))
        for answer in ("n", "escape", "enter"):
            await pilot.press("c")
            await until(pilot, lambda: isinstance(app.screen, dialogs.Confirm))
            assert "victim" in str(app.screen.query_one("#question").render())
            await pilot.press(answer)
            await until(pilot, lambda: not isinstance(app.screen, dialogs.Confirm))
        assert read_exit_record(record.jobdir, record.id) is None
        assert app.said == []
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, dialogs.Confirm))
        await pilot.press("y")
        await until(pilot, lambda: any(record.id in text for text in app.said))
        await until(pilot, lambda: app.chosen.status.state is State.CANCELLED)
        left = read_exit_record(record.jobdir, record.id)
        assert left is not None
        assert left.signal == "TERM"
        await pilot.press("c")  # once more: nothing to ask
        await until(pilot, lambda: f"{record.id} has ended: CANCELLED" in app.said)
        assert not isinstance(app.screen, dialogs.Confirm)

    drive(scene)


@pytest.mark.ci
def test_explain_and_choosing(here: Path) -> None:
    """The verdict on a job that ran out of memory; up and down choose, named jobs stand alone, a shows all."""
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    failed = submit_local(f"echo Traceback '(most recent call last)':; echo '{oom}'; exit 1", name="too-big")
    done = submit_local("echo fine", name="fine")

    async def scene(app: Any, pilot: Any) -> None:
        await until(pilot, lambda: len(app.shown) == 2 and all(one.status.state.ended for one in app.shown.values()))
        await until(pilot, lambda: lines_of(app) == ["fine"])
        assert app.chosen.record.id == done.id  # the newest is on top
        await pilot.press("down")
        await until(pilot, lambda: any(oom in line for line in lines_of(app)))
        assert app.chosen.record.id == failed.id
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, dialogs.Reading))
        verdict = str(app.screen.query_one("#verdict").render())
        assert "cause" in verdict
        assert "68" in verdict
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, dialogs.Reading))

    drive(scene)

    async def alone(app: Any, pilot: Any) -> None:
        await until(pilot, lambda: [row[0] for row in cells(app)] == [failed.id])

    drive(alone, "too-big")


def test_needs_a_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a script there is no screen; what to use instead is said."""
    assert main(["watch"]) == 2
    told = "hpcjob: watch needs a terminal\n        elsewhere: hpcjob status, hpcjob tail JOB -f --loss\n"
    assert capsys.readouterr().err == told


@pytest.mark.ci
@pytest.mark.parametrize(("blocked", "code"), [("", 0), ("textual", 1)])
def test_in_a_terminal(here: Path, blocked: str, code: int) -> None:
    """On a real terminal it draws, and q ends it with code 0; without textual it says what to install."""
    start = f"import sys; sys.modules[{blocked!r}] = None; from hpcjob.cli import main; sys.exit(main(['watch']))"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", start], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    seen = b""
    try:
        while b"no jobs wait or run" not in seen and b"hpcjob[report]" not in seen:
            seen += os.read(ours, 65536)
        if not blocked:
            os.write(ours, b"q")
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux tells the end of a terminal so
                break
            seen += chunk
        assert process.wait(PATIENCE_S) == code
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    if blocked:
        assert b"hpcjob: this needs textual, which is not installed\r\n" in seen
        assert b"pip install 'hpcjob[report]'" in seen

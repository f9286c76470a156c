"""The run of a launch script: its code, signals and log."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neoxlite.launch.ending import tell_why

pytestmark = pytest.mark.usefixtures("place")

RUNNER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from neoxlite.common import streams
    from neoxlite.launch.run import make_run_folder, run_script
    streams.prepare()
    folder = make_run_folder(Path("outputs"))
    sys.exit(run_script(sys.argv[1], folder))
""")
# As a job script does: one line on stdout, the rest into the log that carries its pid.
HEAD = 'echo "folder ${0%/*}"\nexec >"${0%/*}/$$_job.out" 2>&1\n'


def started(script: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RUNNER, script], text=True, **{"stdout": subprocess.PIPE, **more})


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 86", 86), ("kill -KILL $$", 137)])
def test_the_code_and_all_of_the_log_come_through(end: str, code: int) -> None:
    """The exit code is the script's, a death by a signal 128 and its number; the log is whole, to the last byte."""
    done = started(f"{HEAD}seq 1 20000\nprintf 'no newline'\n{end}")
    out, _ = done.communicate(timeout=240)
    assert done.returncode == code
    first, *lines = out.split("\n")
    assert first.startswith("folder ")
    assert lines == [*map(str, range(1, 20001)), "no newline"]


def test_a_failure_ends_with_its_cause() -> None:
    """What only rank 1 has found is told below torchrun's page, which names the signal that rank 0 was ended with."""
    script = textwrap.dedent("""
        printf 'neoxlite: data_path: 文書.idx is damaged\\n          Copy it again.\\n' >"${0%/*}/$$_1_log.out"
        cat <<PAGE
        neoxlite: rank 0 lost the other ranks: Connection closed by peer [127.0.0.1]:45986.
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        env FAILED
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2026-11-30_23:23:12
          host      : localhost
          rank      : 1 (local_rank: 1)
          exitcode  : 2 (pid: 9172)
          error_file: <N/A>
          traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
        ============================================================
        PAGE
        exit 1
    """)
    done = started(HEAD + script, stderr=subprocess.PIPE)
    out, error = done.communicate(timeout=240)
    assert done.returncode == 1
    assert out.rstrip().endswith("=====")
    head, *lines = error.splitlines()
    assert head.startswith("neoxlite launch: the run ended with code 1; its logs: outputs/")
    assert lines[0] == "cause      data_path: 文書.idx is damaged"
    assert lines[-1] == "fix        Copy it again."


@pytest.mark.parametrize(("code", "told"), [(0, False), (85, False), (86, False), (130, False), (1, True), (137, True)])
def test_an_end_without_an_explanation(
    code: int, told: bool, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is told of an end as asked; of a failure that cannot be explained, the command that does it."""
    monkeypatch.setitem(sys.modules, "hpcjob.logs.explain.command", None)
    tell_why(place / "実行", code)
    error = capsys.readouterr().err
    assert error.startswith(f"neoxlite launch: the run ended with code {code}; ") is told
    assert (f"why: hpcjob explain {place}/実行" in error) is told
    assert bool(error) is told


def test_the_run_outlives_its_reader(place: Path) -> None:
    """With ``| head`` the reader goes: the run ends as it would have, and its code is returned."""
    process = started(f"{HEAD}seq 1 100000\nsleep 0.3\nseq 1 100000\ntouch ended\nexit 86")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(240) == 86
    assert (place / "ended").exists()


def test_the_run_outlives_a_full_disk_of_its_reader(place: Path) -> None:
    """``neoxlite launch > FILE`` where the disk fills up: the code is the run's, which has a log of its own."""
    with Path("/dev/full").open("w") as full:
        process = started(f"{HEAD}seq 1 100000\ntouch ended\nexit 85", stdout=full)
        assert process.wait(240) == 85
    assert (place / "ended").exists()


def test_a_failure_before_the_log_is_shown() -> None:
    """What the script says before it has a log is not lost."""
    done = started("echo 'no folder'; exit 87")
    out, _ = done.communicate(timeout=240)
    assert (done.returncode, out) == (87, "no folder\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_goes_on_and_its_outcome_comes_back(number: int, running: list[subprocess.Popen[str]]) -> None:
    """The script hears it, ends as it likes, and its code is returned."""
    script = f"{HEAD}trap 'echo heard; exit 86' INT TERM USR1\necho ready\nwhile :; do sleep 0.05; done"
    process = started(script)
    running.append(process)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=240)
    assert (process.returncode, out) == (86, "heard\n")


def test_the_script_ends_when_the_launcher_is_killed(running: list[subprocess.Popen[str]], place: Path) -> None:
    """SIGKILL of the launching process reaches the script as SIGTERM."""
    process = started(f"{HEAD}trap 'echo ended >ended; exit' TERM\necho $$ ready\nwhile :; do sleep 0.05; done")
    running.append(process)
    assert process.stdout is not None
    while "ready" not in process.stdout.readline():
        assert process.poll() is None
    process.kill()
    process.wait()
    deadline = time.monotonic() + 240
    while not (place / "ended").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (place / "ended").exists()

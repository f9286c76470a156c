"""Ctrl-C in a run's process: the first is a request with one line, the second ends it, an ignored one stays ignored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_BEGIN = """
import os, signal, sys, time
from pathlib import Path
from neoxlite.training.outcome import Progress
from neoxlite.training.signals import EndSignals

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

progress = Progress()
progress.iteration, progress.checkpoint = 7, "/ck/global_step5"
"""


def _run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BEGIN + text, *arguments], capture_output=True, text=True, timeout=240, check=False
    )


def test_a_second_ctrl_c_ends_the_process_at_once(tmp_path: Path) -> None:
    """Also from a wait in C: 130, one line for each, and the outcome names the last checkpoint."""
    outcome = tmp_path / "outcome.json"
    done = _run(
        """
with EndSignals(Path(sys.argv[1]), progress) as signals:
    signals.only_flag("Ctrl-C: saving")
    interrupt()
    time.sleep(0.6)
    assert signals.received
    interrupt()
    signal.sigtimedwait([signal.SIGUSR1], 30)
    print("not ended")
""",
        str(outcome),
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines() == [
        "neoxlite: Ctrl-C: saving",
        "neoxlite: ended at once by a second Ctrl-C, without a save",
    ]
    written = json.loads(outcome.read_text())
    assert (written["outcome"], written["iteration"], written["checkpoint"]) == ("failed", 7, "/ck/global_step5")


def test_one_ctrl_c_that_arrives_twice_is_one() -> None:
    """timeout(1) and launchers send it to the process and to its group."""
    done = _run("""
import neoxlite.training.signals
neoxlite.training.signals._ONE_PRESS_S = 3600  # however long this process is kept waiting between the two
with EndSignals(None, progress) as signals:
    signals.only_flag("Ctrl-C: saving")
    interrupt()
    interrupt()
    time.sleep(0.6)
    print(signals.received)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "neoxlite: Ctrl-C: saving\n")


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """A shell starts what runs in the background so; after the block the handlers are those before it."""
    done = _run("""
signal.signal(signal.SIGINT, signal.SIG_IGN)
with EndSignals(None, progress) as signals:
    signals.only_flag("Ctrl-C: saving")
    interrupt()
    print(signals.received, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\nTrue True\n", "")


def test_what_schedulers_and_terminals_send_is_a_request() -> None:
    """USR1, USR2 and HUP ended a run without a save; ignored ones, as under nohup and hpcjob, stay ignored."""
    done = _run("""
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    with EndSignals(None, progress) as signals:
        signals.only_flag()
        os.kill(os.getpid(), number)
        print(signals.received)
with EndSignals(None, progress):
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.sigtimedwait([signal.SIGWINCH], 30)
""")
    assert done.stdout == "False\nTrue\nTrue\n"
    assert (done.returncode, done.stderr) == (86, "neoxlite: asked to end before training began\n")

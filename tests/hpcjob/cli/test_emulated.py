"""The commands about jobs on PBS and PJM, whose commands are emulated: what a user types in a day, and on bad days."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from hpcjob.cli import main
from hpcjob.schedulers.command_scheduler import CommandScheduler
from hpcjob.tracking import submission
from hpcjob.tracking.index import read_index
from tests.emulators import Emulator
from tests.hpcjob.jobs import with_path

System = Literal["pbs", "pjm"]
SITES: list[tuple[System, str, dict[str, Any]]] = [
    ("pbs", "abci3", {}),
    ("pbs", "miyabi", {"site": "miyabi", "server": "opbs", "needs_group": True}),
    ("pjm", "wisteria", {"needs_group": True}),
    ("pjm", "wisteria", {"needs_group": True, "site": "wisteria", "submitted": "submitted_fugaku"}),
]
BOTH: list[System] = ["pbs", "pjm"]


class Site:
    """An emulated cluster, and a user at its login node."""

    def __init__(self, emulator: Emulator, profile: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.emulator = emulator
        self.profile = profile
        self._capfd = capfd

    def hpcjob(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command; its exit code, and what it printed on stdout and stderr."""
        self._capfd.readouterr()
        code = main(list(arguments))
        out, err = self._capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def submit(self, command: str, **keys: Any) -> dict[str, Any]:
        """Submit a job that runs ``command`` in bash; what is told of it."""
        job = {"name": "little", "kind": "cpu", "modules": [], "command": ["bash", "-c", command], **keys}
        Path("job.yml").write_text(yaml.safe_dump(job))
        code, out, err = self.hpcjob("submit", "job.yml", "-p", self.profile, "--account", "gg53", "--json")
        assert code == 0, err
        submitted: dict[str, Any] = json.loads(out)
        return submitted

    def status(self, job: str = "latest") -> dict[str, Any]:
        """What ``hpcjob status`` tells of a job."""
        status: dict[str, Any] = json.loads(self.hpcjob("status", job, "--json")[1])
        return status

    def until(self, state: str, job: str = "latest") -> dict[str, Any]:
        """Ask until the job is in ``state``."""
        deadline = time.monotonic() + 240
        while (status := self.status(job))["state"] != state:
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status


MakeSite = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[MakeSite]:
    """Make a site of a system, with switches; its profile is the shipped one without what this machine has not."""
    made: list[Emulator] = []
    monkeypatch.setattr(CommandScheduler, "poll_s", (0.1, 0.5))

    def make(system: System, profile: str | None = None, **switches: Any) -> Site:
        profile = profile or {"pbs": "abci3", "pjm": "wisteria"}[system]
        emulator = Emulator(tmp_path / "cluster", system)
        made.append(emulator)
        emulator.set(**switches)
        monkeypatch.setenv("PATH", with_path(emulator.bin))
        own = {"extends": profile, "name": "site", "title": "a test's", "paths": {"not_shared": []}, "modules": {}}
        folder = tmp_path / "config" / "hpcjob" / "cluster_profiles"
        folder.mkdir(parents=True)
        (folder / "site.yml").write_text(yaml.safe_dump(own))
        return Site(emulator, "site", capfd)

    yield make
    for emulator in made:
        emulator.end()


@pytest.mark.ci
@pytest.mark.parametrize(("system", "profile", "switches"), SITES)
def test_a_day(site: MakeSite, system: System, profile: str, switches: dict[str, Any]) -> None:
    """submit, status while it waits and runs, tail, wait with the job's code; then hold, release and cancel."""
    place = site(system, profile, full=True, banner="Maintenance on 12/25: 123 nodes", **switches)
    job = place.submit("echo こんにちは; sleep 0.5; exit 7")
    assert place.status()["state"] == "PENDING"
    place.emulator.set(full=False)
    assert place.hpcjob("wait", job["id"])[0] == 7
    assert "こんにちは" in place.hpcjob("tail", job["id"], "-n", "all")[1]
    status = place.status()
    assert (status["state"], status["exit_code"]) == ("FAILED", 7)
    assert len(place.emulator.jobs) == 1

    job = place.submit("sleep 60")
    place.until("RUNNING")
    assert "RUNNING; it continues" in place.hpcjob("hold", "latest")[1]
    code, out, _ = place.hpcjob("cancel", "latest")
    assert (code, job["id"] in out) == (0, True)
    place.until("CANCELLED")
    assert place.hpcjob("wait", job["id"])[0] != 0
    assert "had ended before (CANCELLED)" in place.hpcjob("cancel", "latest")[1]

    place.submit("exit 0")
    assert place.hpcjob("wait", "latest")[0] == 0
    assert place.status()["state"] == "COMPLETED"


@pytest.mark.parametrize(("system", "profile", "switches"), SITES)
def test_cancelled_while_it_waits(site: MakeSite, system: System, profile: str, switches: dict[str, Any]) -> None:
    """A job that never ran has left nothing; it is CANCELLED all the same."""
    place = site(system, profile, full=True, **switches)
    place.submit("true")
    place.hpcjob("cancel", "latest")
    assert place.until("CANCELLED")["exit_code"] is None


@pytest.mark.parametrize("system", BOTH)
def test_hold_and_release(site: MakeSite, system: System) -> None:
    """A held job does not start though there is room; a job that has ended cannot be held."""
    place = site(system, full=True)
    place.submit("exit 0")
    code, out, _ = place.hpcjob("hold", "latest")
    assert (code, "PENDING (held)" in out) == (0, True)
    place.emulator.set(full=False)
    assert place.status()["state"] == "PENDING"
    assert place.hpcjob("release", "latest")[0] == 0
    assert place.hpcjob("wait", "latest")[0] == 0
    assert "has ended (COMPLETED)" in place.hpcjob("hold", "latest")[1]
    assert {job["state"] for job in place.emulator.jobs.values()} == {"ended"}


@pytest.mark.parametrize("system", BOTH)
def test_over_the_walltime(site: MakeSite, system: System) -> None:
    """Ended at its walltime, a job is a TIMEOUT, though its script has left a code."""
    place = site(system)
    place.submit("sleep 60", walltime="00:00:01", stop_before_s=0)
    place.until("TIMEOUT")


@pytest.mark.parametrize("system", BOTH)
def test_killed_with_its_script(site: MakeSite, system: System) -> None:
    """No exit record: the history tells the signal."""
    place = site(system)
    place.submit("kill -9 $(ps -o ppid= $PPID); sleep 60")
    status = place.until("FAILED")
    assert status["exit_code"] == 128 + 9


@pytest.mark.parametrize("system", BOTH)
def test_without_history_the_exit_record_decides(site: MakeSite, system: System) -> None:
    """Finished jobs cannot be asked for: a record is enough; without one the job is UNKNOWN, and says why."""
    place = site(system, history=False)
    place.submit("exit 3")
    assert place.until("FAILED")["exit_code"] == 3
    job = place.submit("kill -9 $(ps -o ppid= $PPID); sleep 60")
    status = place.until("UNKNOWN")
    assert "not in the queue, no exit record" in status["reason"]
    assert job["id"] in {entry["id"] for entry in map(json.loads, place.hpcjob("list", "--json")[1].splitlines())}


@pytest.mark.parametrize("system", BOTH)
@pytest.mark.parametrize("bad", [{"down": True}, {"cut": 0}, {"cut": 60}, {"cut": 700}])
def test_a_query_that_fails_ends_nothing(site: MakeSite, system: System, bad: dict[str, Any]) -> None:
    """Server down, output empty or cut: a running job is not over; when the server is back, all is well."""
    place = site(system)
    place.submit("until [[ -e go ]]; do sleep 0.1; done")
    place.until("RUNNING")
    place.emulator.set(**bad)
    assert place.status()["state"] in {"UNKNOWN", "RUNNING"}
    place.emulator.set(down=False, cut=None)
    Path("go").touch()
    assert place.hpcjob("wait", "latest")[0] == 0


@pytest.mark.parametrize("system", BOTH)
def test_a_lost_answer_is_found(site: MakeSite, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submit command fails although the job is queued: found, recorded, submitted once."""
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.0, 0.1, 0.1, 0.1))
    place = site(system, lose_answer=True, full=True)
    job = place.submit("exit 0")
    assert len(place.emulator.jobs) == 1
    place.emulator.set(full=False)
    assert place.hpcjob("wait", job["id"])[0] == 0


def test_a_lost_answer_where_the_site_tells_no_paths(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wisteria's pjstat cuts names and tells no paths: nothing is guessed until the script starts and says its id."""
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.0, 0.1))
    place = site("pjm", lose_answer=True, full=True, site="wisteria")
    Path("job.yml").write_text(yaml.safe_dump({"name": "x", "kind": "cpu", "modules": [], "command": ["true"]}))
    code, _, err = place.hpcjob("submit", "job.yml", "-p", "site", "--account", "g")
    assert code == 1
    assert "do not submit again before you have looked" in err
    assert not read_index().records
    monkeypatch.setattr(submission, "_LOOKUP_PAUSES_S", (0.2,) * 1000)  # until the script has started
    place.emulator.set(full=False)
    assert place.submit("exit 0")["id"] in place.emulator.jobs
    assert len(place.emulator.jobs) == 2


@pytest.mark.parametrize("system", BOTH)
def test_refusals_leave_nothing(site: MakeSite, system: System, here: Path) -> None:
    """What the scheduler refuses is told in its words, with what to do; no folder, no record."""
    place = site(system)
    Path("job.yml").write_text(yaml.safe_dump({"name": "x", "kind": "cpu", "modules": [], "command": ["true"]}))
    code, _, err = place.hpcjob("submit", "job.yml", "-p", "site", "--account", "g", "--queue", "nosuch")
    assert code == 1
    assert {"pbs": "Unknown queue", "pjm": "Resource group nosuch does not exist"}[system] in err
    assert "--queue" in err
    place.emulator.set(down=True)
    code, _, err = place.hpcjob("submit", "job.yml", "-p", "site", "--account", "g")
    assert code == 1
    assert "when" in err
    assert [path.name for path in here.iterdir()] == ["job.yml"]
    assert not read_index().records


@pytest.mark.parametrize("system", BOTH)
def test_attach_by_the_short_id(site: MakeSite, system: System, here: Path) -> None:
    """A job that was submitted by hand is tracked under the scheduler's full id, which its files bear."""
    place = site(system)
    Path("job.yml").write_text(yaml.safe_dump({"name": "hand", "kind": "cpu", "modules": [], "command": ["true"]}))
    place.hpcjob("render", "job.yml", "-p", "site", "--account", "g", "-o", "job.sh")
    subprocess.run(["qsub" if system == "pbs" else "pjsub", "job.sh"], check=True, capture_output=True)
    number = next(iter(place.emulator.jobs))
    assert place.hpcjob("attach", number, "-p", "site")[0] == 0
    assert place.hpcjob("wait", "latest")[0] == 0
    assert place.status()["name"] == "hand"

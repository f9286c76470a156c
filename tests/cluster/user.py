"""Someone at the login host: has hpcjob, a home folder and a shared folder, and acts through the command alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.testbed import Testbed
from tests.cluster.testbed.processes import PATIENCE_S, TestbedError, wait_until
from tests.cluster.testbed.profile import PROFILE, write_profile

BIN = Path(sys.executable).parent
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}


class User:
    """A user of the test bed, working in a folder of their own."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        """``folder`` is on the shared file system."""
        self.bed = bed
        self.folder = folder
        folder.mkdir(parents=True)
        # An index of jobs of their own: ids of two schedulers, or of two runs of the test bed, may meet.
        self.environment = {"XDG_STATE_HOME": str(bed.home / "state" / folder.relative_to(bed.work))}

    def write_profile(self, changes: Mapping[str, Any] | None = None, name: str = PROFILE) -> str:
        """Write a profile of the test bed into the user's own profiles."""
        return write_profile(self.bed.home, changes, name)

    def write_job(self, name: str, **keys: Any) -> Path:
        """Write a job file into the user's folder."""
        path = self.folder / f"{name}.yml"
        path.write_text(yaml.safe_dump({"schema": 1, "name": name, **keys}, sort_keys=False))
        return path

    def run(self, *argv: str | Path, check: bool = True, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run any command on the login host, in the user's folder."""
        return self.bed.login.run(*argv, cwd=self.folder, env=self.environment, check=check, timeout_s=timeout_s)

    def start(self, *argv: str | Path, output: Path) -> subprocess.Popen[bytes]:
        """Start any command as `run` does, and go on."""
        return self.bed.login.start(*argv, output=output, cwd=self.folder, env=self.environment)

    def hpcjob(self, *arguments: str | Path, check: bool = True, timeout_s: float = 240) -> str:
        """Run hpcjob, which must end well; what it printed."""
        return self.run(BIN / "hpcjob", *arguments, check=check, timeout_s=timeout_s).stdout

    def submit(self, job: Path, *options: str, profile: str = PROFILE) -> str:
        """Submit a job; its id."""
        return str(json.loads(self.hpcjob("submit", job, "--profile", profile, "--json", *options))["id"])

    def status(self, job: str) -> dict[str, Any]:
        """What ``hpcjob status`` says of a job."""
        status: dict[str, Any] = json.loads(self.hpcjob("status", job, "--json"))
        return status

    def jobdir(self, job: str) -> Path:
        """The job's directory."""
        return Path(self.status(job)["jobdir"])

    def wait_for(self, job: str, condition: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
        """Poll until ``condition`` holds; if it does not, or the job ends before, the error has its status and log."""

        def holds_or_has_ended() -> bool:
            return condition() or self.status(job)["state"] in ENDED

        try:
            wait_until(holds_or_has_ended, timeout_s, f"waited for job {job} to be {what}", pause_s=0.3)
            if not condition():
                raise TestbedError(f"job {job} has ended and was not {what}")
        except TestbedError as error:
            raise TestbedError(f"{error}: {self.status(job)}\n{self.log(job)}") from None

    def wait_for_state(self, job: str, state: str, timeout_s: float = 240) -> None:
        """Ask ``hpcjob status`` until it says ``state``."""
        self.wait_for(job, lambda: self.status(job)["state"] == state, state, timeout_s)

    def wait_for_accounting(self, job: str, state: str) -> None:
        """Ask ``sacct`` until it says ``state`` of the job; it lags behind the job's own files."""
        words = ("sacct", "-X", "-n", "-P", "-j", job, "--format=State")
        wait_until(lambda: self.run(*words).stdout.strip() == state, PATIENCE_S, f"job {job} is not {state} in sacct")

    def wait(self, job: str, timeout_s: float = 240) -> int:
        """Wait with ``hpcjob wait``; the code it ends with, which is the job's."""
        return self.run(BIN / "hpcjob", "wait", job, check=False, timeout_s=timeout_s).returncode

    def log(self, job: str) -> str:
        """The job's whole log, as ``hpcjob tail`` prints it."""
        return self.hpcjob("tail", job, "--raw", "-n", "all")

    def losses(self, job: str) -> dict[int, float]:
        """Loss of each logged iteration, as ``hpcjob tail --loss`` tells it."""
        lines = self.hpcjob("tail", job, "--loss", "-n", "all", "--json").splitlines()
        events = [json.loads(line) for line in lines]
        return {event["iteration"]: event["loss"] for event in events if event["event"] == "iteration"}

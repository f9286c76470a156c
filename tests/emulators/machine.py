"""The batch system behind the commands: jobs in a folder, each script run by a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

REPLIES = Path(__file__).with_name("replies")
ENTRY = Path(__file__).with_name("__main__.py")
KILL_DELAY_S = 2.0
_POLL_S = 0.1
_DELETED = "deleted"  # in a job's folder: hundreds of running jobs look for that, and cannot all read ``jobs.json``

Job = dict[str, Any]


class Machine:
    """Jobs and switches, kept in ``folder``; several commands may work on it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def switch(self, name: str) -> Any:
        """Return the value of a switch; None if it is not set."""
        return json.loads((self.folder / "switches.json").read_text()).get(name)

    @contextlib.contextmanager
    def jobs(self) -> Iterator[dict[str, Job]]:
        """All jobs by their number, for reading and changing; nobody else sees a state in between."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "jobs.json"
            jobs = self.snapshot()
            yield jobs
            path.with_suffix(".tmp").write_text(json.dumps(jobs))
            path.with_suffix(".tmp").replace(path)

    def snapshot(self) -> dict[str, Job]:
        """Return the jobs as they are now."""
        path = self.folder / "jobs.json"
        jobs: dict[str, Job] = json.loads(path.read_text()) if path.exists() else {}
        return jobs

    def add(
        self,
        script: str,
        complete: Callable[[str, Job], None],
        *,
        tasks: Sequence[int] | None = None,
        step_of: str | None = None,
        is_step: bool = False,
        **known: Any,
    ) -> str:
        """Queue a job, start the process that will run it, and return its number.

        ``complete`` is given the number and the job, to add what depends on the number.

        Args:
            tasks: of an array, the numbers of its elements, each a job called ``NUMBER[TASK]`` beside the array itself.
            step_of, is_step: it is a step, of that step job or the first of a new one: ``NUMBER_STEP``.
        """
        with self.jobs() as jobs:
            number = step_of or str(self.switch("first_id") + len(jobs))
            if is_step:
                number += f"_{sum(name.startswith(f'{number}_') for name in jobs)}"
            names = [number] if tasks is None else [f"{number}[{task}]" for task in tasks]
            if tasks is not None:
                jobs[number] = {"state": "array", "created": time.time(), **known}
                complete(number, jobs[number])
            for name in names:
                job = {"state": "held" if known["held"] else "queued", "created": time.time(), **known}
                if tasks is not None:
                    job["array"] = number
                complete(name, job)
                jobs[name] = job
                spool = self.folder / name
                spool.mkdir()
                (spool / "script").write_text(script)
                (spool / "script").chmod(0o700)
        for name in names:
            runner = [sys.executable, "-E", "-s", "-S", str(ENTRY), "run", str(self.folder), name]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.Popen(runner, start_new_session=True, **quiet)  # type: ignore[call-overload]
        return number

    def attend_shell(self, argv: Sequence[str], complete: Callable[[str, Job], None], **known: Any) -> tuple[str, int]:
        """Run an interactive job in this terminal to its end; return its number and the exit code of its shell."""
        with self.jobs() as jobs:
            number = str(self.switch("first_id") + len(jobs))
            job: Job = {"state": "running", "created": time.time(), "started": time.time(), "pid": os.getpid(), **known}
            complete(number, job)
            jobs[number] = job
        environment = {"PATH": os.environ["PATH"], "TERM": os.environ.get("TERM", "dumb"), **job["environment"]}
        done = subprocess.run(argv, cwd=job["cwd"], env=environment, check=False)
        with self.jobs() as jobs:
            jobs[number].update(state="ended", ended=time.time(), code=done.returncode, over_walltime=False)
        return number, done.returncode

    def delete(self, number: str) -> str:
        """End a job: TERM now, KILL after a while; return the state that it was in."""
        if self.snapshot()[number]["state"] == "array":
            parts = [self.delete(name) for name, job in self.snapshot().items() if job.get("array") == number]
            return "ended" if set(parts) == {"ended"} else "running"
        with self.jobs() as jobs:
            job = jobs[number]
            before = str(job["state"])
            if before in ("queued", "held"):
                job.update(state="ended", deleted=True, ended=time.time())
            elif before in ("starting", "running"):
                job["deleted"] = True
                (self.folder / number / _DELETED).touch()
                with contextlib.suppress(ProcessLookupError, KeyError):
                    os.killpg(job["pid"], signal.SIGTERM)
        return before


def reply(system: str, name: str, /, **values: object) -> str:
    """Return a reply's text: the file without its lines of sources, with ``@key@`` replaced."""
    lines = (REPLIES / system / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#: "))
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def run(machine: Machine, number: str) -> None:
    """Run a job from its start to its end."""
    job = _wait_to_start(machine, number)
    if job is None:
        return
    spool = machine.folder / number
    final = Path(job["output"])
    live = final if job["live_output"] else spool / "output"
    with contextlib.suppress(OSError):
        live.parent.mkdir(parents=True, exist_ok=True)
    # The jobs' own environment: nothing of the submitter's goes along.
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **job["environment"]}
    with live.open("ab") as output, machine.jobs() as jobs:
        if jobs[number]["state"] == "ended":  # by the end of the test
            return
        child = subprocess.Popen(
            [str(spool / "script")],
            cwd=job["cwd"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        jobs[number].update(state="running", started=time.time(), pid=child.pid)
    code, over = _attend(machine, number, child, job["walltime_s"])
    if not job["live_output"]:
        final.write_bytes(live.read_bytes())
    time.sleep(machine.switch("exiting_s") or 0)
    with machine.jobs() as jobs:
        jobs[number].update(state="ended", ended=time.time(), code=code, over_walltime=over)


def _wait_to_start(machine: Machine, number: str) -> Job | None:
    """Return the job when it may start; None if it was deleted first, or what it waits for did not come true."""
    began = time.monotonic()
    while True:
        with machine.jobs() as jobs:
            job = jobs[number]
            if job["state"] == "ended":
                return None
            verdicts = [verdict(jobs, condition, other) for condition, other in job.get("after", ())]
            if job["state"] == "queued" and False in verdicts:
                job.update(state="ended", ended=time.time())
                return None
            if job["state"] == "queued" and not machine.switch("full") and all(verdicts) and _has_room(jobs, job):
                job["state"] = "starting"
                return job
        time.sleep(_pause_s(began))


def _pause_s(began: float) -> float:
    """Return how long to sleep: many jobs wait for long at once, and looking often would cost whole cores."""
    return min(max(_POLL_S, (time.monotonic() - began) / 20), 1.0)


def verdict(jobs: dict[str, Job], condition: str, number: str) -> bool | None:
    """Return whether a condition on another job has come true; None: it may still.

    Of an array the element that ends last decides. What comes after a job deleted before it ran waits for ever.
    """
    parts = [job for name, job in jobs.items() if number in (name, job.get("array")) and job["state"] != "array"]
    if any(job["state"] != "ended" for job in parts):
        return None
    last = max(parts, key=lambda job: float(job["ended"]))
    if "code" not in last:
        return None if last.get("deleted") else False
    well = last["code"] == 0 and not last.get("deleted") and not last.get("over_walltime")
    return {"afterok": well, "afternotok": not well}.get(condition, True)


def _has_room(jobs: dict[str, Job], job: Job) -> bool:
    """Return whether the array of an element lets one more run."""
    running = sum(
        one.get("array") == job.get("array") and one["state"] in ("starting", "running") for one in jobs.values()
    )
    return job.get("limit") is None or running < job["limit"]


def _attend(machine: Machine, number: str, child: subprocess.Popen[bytes], walltime_s: float) -> tuple[int, bool]:
    """Wait for a script; return its code, below 0 for a signal, and whether it ran too long."""
    began = time.monotonic()
    asked: float | None = None
    over = False
    while child.poll() is None:
        now = time.monotonic()
        if asked is None and now - began > walltime_s:
            over = True
            os.killpg(child.pid, signal.SIGTERM)
            asked = now
        if asked is None and (machine.folder / number / _DELETED).exists():
            asked = now
        elif asked is not None and now - asked > KILL_DELAY_S:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return child.returncode, over

"""What the tests of the submitit plugins run in jobs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import submitit


def add(left: int, right: int) -> int:
    """Return the sum, and say something on both streams."""
    print(f"たす {left}", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    return left + right


def fail(words: str) -> None:
    """Raise."""
    raise ValueError(words)


def die(code: int) -> None:
    """End the process at once, without a pickle."""
    print("about to die", flush=True)
    os._exit(code)


def sleep(seconds: float) -> str:
    """Take time."""
    print("asleep", flush=True)
    time.sleep(seconds)
    return "woke up"


def wait_for(path: str) -> str:
    """Wait for a file."""
    while not Path(path).exists():
        time.sleep(0.1)
    return "went on"


def once(folder: str, number: int) -> int:
    """Return the number, and leave a line for each time."""
    with (Path(folder) / str(number)).open("a") as file:
        file.write("ran\n")
    return number


def second_time(folder: str) -> str:
    """Return at once when it is started for the second time."""
    begun = Path(folder) / "begun"
    if begun.exists():
        return "the second time"
    begun.touch()
    return sleep(600)


def nested(folder: str, cluster: str) -> int:
    """Submit a function from inside a job, and wait for it."""
    job = submitit.AutoExecutor(folder, cluster=cluster).submit(add, 20, 22)
    result: int = job.result()
    return result


def environment() -> dict[str, object]:
    """Return what the job environment says."""
    env = submitit.JobEnvironment()
    return {
        "cluster": env.cluster,
        "job_id": env.job_id,
        "array_task_id": env.array_task_id,
        "num_tasks": env.num_tasks,
        "num_nodes": env.num_nodes,
        "node": env.node,
        "global_rank": env.global_rank,
        "local_rank": env.local_rank,
        "hosts": len(set(env.hostnames)),
        "cwd": str(Path.cwd()),
        "WORD": os.environ.get("WORD"),
    }


class Patient:
    """Runs until it was told ``times`` times that its time is over; what it counted goes along."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.attempts = 1

    def __call__(self, word: str = "") -> tuple[str, int]:
        """Return the word and the number of attempts."""
        print(f"attempt {self.attempts}", flush=True)
        while self.attempts <= self.times:
            time.sleep(0.05)
        return word, self.attempts

    def checkpoint(self, word: str = "") -> submitit.helpers.DelayedSubmission:
        """Go on from here."""
        again = Patient(self.times)
        again.attempts = self.attempts + 1
        return submitit.helpers.DelayedSubmission(again, word)

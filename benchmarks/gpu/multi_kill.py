"""A rank of a running job is killed: when everything is gone, what `hpcjob explain` says, how the run resumes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from neoxlite.parallel.ranks import Ranks

_OF_A_JOB = ("HPCJOB_JOB", "HPCJOB_SUBMIT_DIR", "NEOXLITE_", "NCCL_DEBUG", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE")


def kill(ranks: Ranks, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start a job of several ranks with `hpcjob submit --profile local`, SIGKILL its last rank in a step, resume it.

    Torch's deterministic algorithms are on (`multi_deterministic`): without them a GPU's sums come in any order.

    Returns:
        ``gone_s`` until no process of the job was left; ``explain`` and ``nccl``, what hpcjob says; ``resumed_equal``:
        whether all losses behind the checkpoint that both runs have are equal bit for bit, and ``compared`` of them.
    """
    shutil.rmtree(arguments["checkpoints"], ignore_errors=True)
    job = folder / "job.yml"
    script = str(Path(__file__).with_name("multi_deterministic.py"))
    on_gpus = arguments["device"] == "cuda"
    job.write_text(
        yaml.safe_dump(
            {
                "schema": 1,
                "name": "killed",
                "procs_per_node": arguments["ranks"],
                "env": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": 1},
                "command": ["python", script, "train", arguments["config"]],
            }
        )
    )
    first = _Job(folder, job, arguments["ranks"] if on_gpus else 0)
    try:
        return _killed_and_resumed(folder, job, arguments, first)
    finally:
        first.hpcjob("cancel", first.id)


def _killed_and_resumed(folder: Path, job: Path, arguments: dict[str, Any], first: _Job) -> dict[str, Any]:
    on_gpus = arguments["device"] == "cuda"
    first.wait_for(lambda: first.iteration() > arguments["kill_behind"], arguments["patience_s"])
    victim = first.processes(rank=arguments["ranks"] - 1)
    everyone = first.processes()
    began = time.monotonic()
    for pid in victim:
        os.kill(pid, signal.SIGKILL)
    gone = first.wait_for(lambda: not any(map(_alive, everyone)), 120) - began
    state = first.hpcjob("status", first.id, "--json")
    explained = first.hpcjob("explain", first.id, "--json")
    text = first.hpcjob("explain", first.id)
    nccl = first.hpcjob("tail", first.id, "--nccl")
    second = _Job(folder, job, arguments["ranks"] if on_gpus else 0)
    second.wait_for(lambda: second.iteration() >= first.iteration(), arguments["patience_s"])
    (second.folder / "stop").write_text("request\n")
    second.wait_for(lambda: not second.processes(), 60)
    before, after = first.losses(), second.losses()
    shared = [number for number in after if number in before]
    return {
        "killed": {"rank": arguments["ranks"] - 1, "pids": victim, "processes": len(everyone)},
        "gone_s": gone,
        "state": state,
        "explain": explained,
        "explain_text": text,
        "nccl": nccl,
        "jobdirs": [str(first.folder), str(second.folder)],
        "resumed_from": min(after) - 1,
        "compared": len(shared),
        "resumed_equal": bool(shared) and all(before[number] == after[number] for number in shared),
        "largest_difference": max((abs(before[number] - after[number]) for number in shared), default=None),
    }


class _Job:
    """A job submitted to this machine."""

    def __init__(self, folder: Path, job: Path, gpus: int):
        self._cwd = folder
        self._env = {name: text for name, text in os.environ.items() if not name.startswith(_OF_A_JOB)}
        told = json.loads(
            self.hpcjob("submit", str(job), "-p", "local", "--set", f"profile.node.gpus={gpus}", "--no-check", "--json")
        )
        self.id = str(told["id"])
        self.folder = Path(told["jobdir"])

    def hpcjob(self, *words: str) -> str:
        """Run a command and return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "hpcjob", *words], cwd=self._cwd, env=self._env, capture_output=True, text=True
        )
        if words[0] == "submit" and done.returncode:
            raise RuntimeError(f"hpcjob submit: {done.stdout}{done.stderr}")
        return done.stdout if words[0] == "submit" else done.stdout + done.stderr

    def losses(self) -> dict[int, float]:
        """Return iteration -> loss."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
            rows = [json.loads(line) for line in lines if line.endswith("\n")]
            return {row["iteration"]: row["loss"] for row in rows if "loss" in row and "iteration_time_ms" in row}
        return {}

    def iteration(self) -> int:
        """Return the last iteration that is on the disk."""
        return max(self.losses(), default=0)

    def processes(self, rank: int | None = None) -> list[int]:
        """Return the pids of its script, launcher and ranks, or of one rank's."""
        mark = f"HPCJOB_JOBDIR={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes().split(b"\0")
                ours = mark in environ or int(entry.name) == int(self.id)
                if ours and (rank is None or f"RANK={rank}".encode() in environ):
                    found.append(int(entry.name))
        return [pid for pid in found if _alive(pid)]

    def wait_for(self, condition: Callable[[], bool], limit_s: float) -> float:
        """Wait until something holds and return that moment; a job that is over before is an error."""
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                log = "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
                raise RuntimeError(f"not in {limit_s} s; {log}")
            time.sleep(0.05)
        return time.monotonic()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False

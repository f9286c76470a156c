"""CPU time and memory of hpcjob's commands over many job records.

    python benchmarks/records.py [--records 10000] [--runs 5] [--json]

Half of the records were seen to end; the other half are asked for, and squeue, a script that prints a file, has all of
them in its queue. Medians of whole processes with their children: user and system time, and the largest resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_BIN = Path(sys.executable).parent
_SUBMITTED = "2026-11-30T00:00:00.000000+00:00"
_MOST_CPU_S, _MOST_MIB = 1.0, 150


def write_records(folder: Path, records: int) -> dict[str, str]:
    """Write the index and a squeue; return the environment to run in."""
    index, bin_ = folder / "state/hpcjob/lab@login.jsonl", folder / "bin"
    index.parent.mkdir(parents=True)
    bin_.mkdir()
    with index.open("w") as lines:
        for number in range(records):
            key = {"profile": "lab", "server": "", "id": str(100_000 + number), "submitted": _SUBMITTED}
            job = {"scheduler": "slurm", "name": f"job{number % 50}", "directory": f"/w/outputs/job/{number}"}
            lines.write(json.dumps({"event": "submitted", **key, **job}) + "\n")
            if number % 2:
                seen = {"state": "COMPLETED", "exit_code": 0, "time": _SUBMITTED}
                lines.write(json.dumps({"event": "state", **key, **seen}) + "\n")
    (folder / "queue").write_text(
        "".join(f"{100_000 + number}|PENDING|Priority|job\n" for number in range(0, records, 2))
    )
    (bin_ / "squeue").write_text(f"#!/bin/sh\ncat {folder}/queue\n")
    (bin_ / "squeue").chmod(0o755)
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
    return {**os.environ, **own, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}


def measure(argv: list[str], environment: Mapping[str, str], folder: Path) -> tuple[float, float, int]:
    """Return CPU seconds, MiB and lines of output of one run."""
    with (folder / "out").open("wb+") as out:
        child = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
    if child.returncode:
        raise RuntimeError(f"{argv} ended with {child.returncode}: {said[-500:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, len(said.splitlines())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU time and memory over many job records.")
    parser.add_argument("--records", type=int, default=10_000, help="records (default: 10000)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object: command -> [CPU s, MiB]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = write_records(folder, options.records)
        own, last = str(_BIN / "hpcjob"), str(100_000 + options.records - 2)
        completing = {"_HPCJOB_COMPLETE": "bash_complete", "COMP_WORDS": "hpcjob status job", "COMP_CWORD": "2"}
        commands: dict[str, tuple[list[str], dict[str, str]]] = {
            "hpcjob list": ([own, "list"], {}),
            "hpcjob list --all": ([own, "list", "--all"], {}),
            "hpcjob status": ([own, "status"], {}),
            "hpcjob status ID": ([own, "status", last], {}),
            "completion of an id": ([own], completing),
        }
        taken: dict[str, list[tuple[float, float, int]]] = {}
        for turn in range(options.runs + 1):  # the first notes the states that it sees, and fills caches
            for label, (argv, more) in commands.items():
                one = measure(argv, {**environment, **more}, folder)
                if turn:
                    taken.setdefault(label, []).append(one)
    medians = {
        label: [statistics.median(one[column] for one in runs) for column in (0, 1)] for label, runs in taken.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    print(f"{options.records:,} records; at most {_MOST_CPU_S:g} s of CPU and {_MOST_MIB} MiB are wanted")
    for label, (cpu_s, mib) in medians.items():
        over = "" if cpu_s < _MOST_CPU_S and mib < _MOST_MIB else "   more than wanted"
        print(f"{label:22} {cpu_s:6.2f} s {mib:7.0f} MiB {taken[label][0][2]:7,} lines{over}")


if __name__ == "__main__":
    main()

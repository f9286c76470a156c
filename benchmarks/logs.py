"""Speed of reading logs: lines and megabytes a CPU second of each view, beside ``grep -c`` on the same file.

    python benchmarks/logs.py [--megabytes 200]

The log is made of the lines that a job with NCCL_DEBUG=INFO writes: 98 % from NCCL, 2 % from the trainer, one
traceback at the end. Each figure is the best of three in a process of its own, the start of Python included; the file
is in the page cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TRAINING = (
    " samples/sec: 27.346 | iteration {i:8d}/  320000 | elapsed time per iteration (ms): 1170.2 "
    "| learning rate: 1.000E-04 | approx flops per GPU: 8.5TFLOPS | lm_loss: 7.123458E+00 | loss scale: 4096.0 "
    "| number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: the end\n'
REPEATS = 3
PATTERNS = ("iteration", "iteration|Traceback|NCCL WARN")


def write_log(path: Path, megabytes: int) -> tuple[int, int]:
    """Write the log and return its lines and bytes."""
    lines = size = iteration = 0
    with path.open("w") as file:
        while size < megabytes * 1_000_000:
            block = []
            for rank in range(49):
                prefix = f"node{rank // 8:02d}:{100 + rank}:{200 + rank} [{rank % 8}] NCCL INFO "
                block.append(
                    f"{prefix}Channel {rank % 16:02d}/0 : {rank}[{rank % 8}] -> {rank + 1}[0] via P2P/CUMEM/read\n"
                )
            iteration += 1
            block.append(TRAINING.format(i=iteration))
            size += file.write("".join(block))
            lines += len(block)
        size += file.write(TRACEBACK)
    return lines + TRACEBACK.count("\n"), size


def split_only(path: Path) -> None:
    """Cut into lines and clean them, which is what every view stands on."""
    from hpcjob.logs.follow import follow

    for _ in follow([path], stop=lambda: True):
        pass


def view(*options: str) -> Callable[[Path], None]:
    """Run ``hpcjob tail`` with its output thrown away."""

    def run(path: Path) -> None:
        from hpcjob.cli import main

        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = nowhere
            try:
                main(["tail", str(path), "-n", "all", *options])
            finally:
                sys.stdout = sys.__stdout__

    return run


CASES: dict[str, Callable[[Path], None]] = {
    "lines, cleaned": split_only,
    "tail": view(),
    "tail --loss": view("--loss"),
    "tail --errors": view("--errors"),
    "tail --nccl": view("--nccl"),
}


def cpu_s(command: list[str]) -> float:
    """Return the least CPU time in seconds, user and system, of a command."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Not to /dev/null: grep would see it and stop at the first match.
        subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C.UTF-8"}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        CASES[options.case](options.log)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        lines, size = write_log(path, options.megabytes)
        print(f"{size / 1e6:.0f} MB, {lines:,} lines")
        rows = {f"grep -cE '{pattern}'": cpu_s(["grep", "-cE", pattern, str(path)]) for pattern in PATTERNS}
        rows |= {case: cpu_s([sys.executable, __file__, "--case", case, "--log", str(path)]) for case in CASES}
        for name, seconds in rows.items():
            print(f"{name:<46} {seconds:7.2f} CPU s {size / seconds / 1e6:8.0f} MB/s {lines / seconds:12,.0f} lines/s")


if __name__ == "__main__":
    main()

"""Speed of reading logs: lines and megabytes a CPU second of each view, beside ``grep -c`` on the same file.

    python benchmarks/logs.py [--megabytes 200]

Then how soon the last lines of 100 GB are shown, and what following 64 growing files costs (log_following.py).

The log is made of the lines that a job with NCCL_DEBUG=INFO writes: 98 % from NCCL, 2 % from the trainer, one
traceback at the end; ``grep`` runs once with a few words and once with all texts that ``explain`` looks for. Each
figure is the best of three in a process of its own, the start of Python included; the file is in the page cache.
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

from log_following import following, opening

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


def piped(path: Path) -> None:
    """Run ``hpcjob tail - --loss``, which has to read all of the pipe for its last rows."""
    from hpcjob.cli import main

    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat, Path(os.devnull).open("w") as nowhere:
        assert cat.stdout is not None
        os.dup2(cat.stdout.fileno(), sys.stdin.fileno())
        sys.stdout = nowhere
        try:
            main(["tail", "-", "--loss"])
        finally:
            sys.stdout = sys.__stdout__


def explain(path: Path) -> None:
    """Run ``hpcjob explain`` with its output thrown away."""
    from hpcjob.cli import main

    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = nowhere
        try:
            main(["explain", str(path)])
        finally:
            sys.stdout = sys.__stdout__


def explain_without_engine(path: Path) -> None:
    """Do the same as if the package ``hyperscan`` were not installed."""
    sys.modules["hyperscan"] = None  # type: ignore[assignment]  # importing it fails then
    explain(path)


def alternation() -> str:
    """Return what ``explain`` looks for, as one extended regular expression."""
    from hpcjob.logs.errors import needles
    from hpcjob.logs.rulebook import load_errors

    texts = sorted({text.decode() for text in (*load_errors().literals, *needles(), b"iteration")})
    special = frozenset("\\.[^$*+?(){|")
    return "|".join("".join(f"\\{char}" if char in special else char for char in text) for text in texts)


CASES: dict[str, Callable[[Path], None]] = {
    "lines, cleaned": split_only,
    "explain, with hyperscan if installed": explain,
    "explain, without": explain_without_engine,
    "tail": view(),
    "tail --raw": view("--raw"),
    "tail --loss": view("--loss"),
    "cat | tail - --loss, the last rows": piped,
    "tail --errors": view("--errors"),
    "tail --nccl": view("--nccl"),
}


def cost(command: list[str]) -> tuple[float, int]:
    """Return the least CPU time in seconds, user and system, of a command, and its memory in MiB if it tells."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Not to /dev/null: grep would see it and stop at the first match.
        done = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times), int(done.stderr) if done.stderr.strip().isdigit() else 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        CASES[options.case](options.log)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        lines, size = write_log(path, options.megabytes)
        print(f"{size / 1e6:.0f} MB, {lines:,} lines")
        rows = {f"grep -cE '{pattern}'": cost(["grep", "-cE", pattern, str(path)]) for pattern in PATTERNS}
        rows["grep -cE, all that explain looks for"] = cost(["grep", "-cE", alternation(), str(path)])
        rows |= {case: cost([sys.executable, __file__, "--case", case, "--log", str(path)]) for case in CASES}
        for name, (seconds, memory_mib) in rows.items():
            memory = f"{memory_mib:5d} MiB" if memory_mib else ""
            rate = f"{size / seconds / 1e6:8.0f} MB/s {lines / seconds:12,.0f} lines/s"
            print(f"{name:<46} {seconds:7.2f} CPU s {rate} {memory}")
    print(*opening(TRAINING), following(TRAINING), sep="\n")


if __name__ == "__main__":
    main()

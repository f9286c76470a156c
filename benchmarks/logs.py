"""Speed of reading logs, side by side with ``grep -cE`` on the same file: all figures of docs/logs.md in one run.

    python benchmarks/logs.py [--megabytes 2000] [--slow-megabytes 100]

Then how soon the last lines of 100 GB are shown, and what following 64 growing files costs (log_following.py, which
also runs alone).

The log is made of the lines that a job with NCCL_DEBUG=INFO writes: 98 % from NCCL, 2 % from the trainer, one
traceback at the end. ``grep`` looks for the texts of the view beside it: for those of ``explain`` and for those of the
iteration table. Views that show each line or row (``-n all``) read the first part of it only. Each figure is the best
of three in a process of its own, the start of Python included; the file is in the page cache. Where the package
hyperscan is installed, "without" is as if it were not.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from log_following import ENVIRONMENT, following, opening

TRAINING = (
    " samples/sec: 27.346 | iteration {i:8d}/  320000 | elapsed time per iteration (ms): 1170.2 "
    "| learning rate: 1.000E-04 | approx flops per GPU: 8.5TFLOPS | lm_loss: 7.123458E+00 | loss scale: 4096.0 "
    "| number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: the end\n'
REPEATS = 3


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


def view(*options: str, count: str = "all") -> Callable[[Path], None]:
    """Run ``hpcjob tail`` with its output thrown away."""

    def run(path: Path) -> None:
        from hpcjob.cli import main

        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = nowhere
            try:
                main(["tail", str(path), *(["-n", count] if count else []), *options])
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


def without(case: Callable[[Path], None]) -> Callable[[Path], None]:
    """Do the same as if the package ``hyperscan`` were not installed."""

    def run(path: Path) -> None:
        sys.modules["hyperscan"] = None  # type: ignore[assignment]  # importing it fails then
        case(path)

    return run


def alternation(texts: Iterable[bytes]) -> str:
    """Return texts as one extended regular expression."""
    special = frozenset("\\.[^$*+?(){|")
    words = sorted({text.decode() for text in texts})
    return "|".join("".join(f"\\{char}" if char in special else char for char in text) for text in words)


def patterns() -> dict[str, str]:
    """Return what the views look for."""
    from hpcjob.logs.errors import needles
    from hpcjob.logs.parse import TABLE_NEEDLES
    from hpcjob.logs.rulebook import load_errors

    return {
        "--loss": alternation((*TABLE_NEEDLES, b"seq_length .")),
        "explain": alternation((*load_errors().literals, *needles(), b"iteration")),
    }


Case = tuple[Callable[[Path], None], str]
FAST: dict[str, Case] = {
    "explain": (explain, "grep, texts of explain"),
    "explain, without hyperscan": (without(explain), "grep, texts of explain"),
    "tail --loss": (view("--loss", count=""), "grep, texts of --loss"),
    "cat | tail - --loss": (piped, "cat | grep, texts of --loss"),
    "cat | tail - --loss, without hyperscan": (without(piped), "cat | grep, texts of --loss"),
    "tail --errors": (view("--errors", count=""), "grep, texts of explain"),
    "tail --nccl": (view("--nccl", count=""), "grep, texts of explain"),
}
SLOW: dict[str, Case] = {
    "lines, cleaned": (split_only, ""),
    "tail -n all": (view(), ""),
    "tail --raw -n all": (view("--raw"), ""),
    "tail --loss -n all": (view("--loss"), "grep, texts of --loss"),
    "tail --loss -n all, without hyperscan": (without(view("--loss")), "grep, texts of --loss"),
}
CASES = FAST | SLOW


def cost(command: list[str]) -> tuple[float, int]:
    """Return the least CPU time in seconds, user and system, of a command, and its memory in MiB if it tells."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Not to /dev/null: grep would see it and stop at the first match.
        done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times), int(done.stderr) if done.stderr.strip().isdigit() else 0


def row(name: str, size: int, lines: int, found: tuple[float, int], than: float | None) -> str:
    """Return a row of the table; ``than``: CPU seconds of what it is compared with, for the same bytes."""
    seconds, memory_mib = found
    memory = f"{memory_mib:5d} MiB" if memory_mib else " " * 9
    ratio = "" if than is None else f"  {than / seconds:5.2f} x the grep"
    rate = f"{size / seconds / 1e6:8,.0f} MB/s {lines / seconds:12,.0f} lines/s"
    return f"{name:<42} {seconds:7.2f} CPU s {rate} {memory}{ratio}"


def table(cases: dict[str, Case], path: Path, lines: int, folder: Path) -> None:
    """Measure the cases on a log, and grep beside them."""
    size = path.stat().st_size
    print(f"{size / 1e6:,.0f} MB, {lines:,} lines")
    greps: dict[str, float] = {}
    compared = {than for _, than in cases.values()}
    for name, text in patterns().items():
        command = ["grep", "-cE", text, str(path)]
        pipe = ["sh", "-c", f"cat '{path}' | grep -cE -f '{folder / name}'"]
        (folder / name).write_text(text + "\n")
        for title, words in ((f"grep, texts of {name}", command), (f"cat | grep, texts of {name}", pipe)):
            if title in compared:
                found = cost(words)
                greps[title] = found[0]
                print(row(title, size, lines, found, None), flush=True)
    for name, (_, than) in cases.items():
        found = cost([sys.executable, __file__, "--case", name, "--log", str(path)])
        print(row(name, size, lines, found, greps.get(than)), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--slow-megabytes", type=int, default=100, help="for views that show each line or row")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        CASES[options.case][0](options.log)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
        return
    for cases, megabytes in ((FAST, options.megabytes), (SLOW, options.slow_megabytes)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.log"
            lines, _ = write_log(path, megabytes)
            table(cases, path, lines, Path(folder))
    print(*opening(TRAINING), following(TRAINING), sep="\n")


if __name__ == "__main__":
    main()

"""CPU time of hpcjob's commands, beside what they stand on and what comparable tools take.

    python benchmarks/cli.py [--runs 15] [--json]

User and system time of the whole process and its children, medians, so that a busy machine changes little. Other tools
are measured where they are installed beside this Python: torchx's dry run of one `utils.echo`, reframe's listing of an
empty folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_BIN = Path(sys.executable).parent
_TARGETS_MS = {"hpcjob render": 130, "hpcjob --help": 60}


def cases(empty: Path) -> dict[str, list[str]]:
    """Return the command lines to measure, by label, leaving out tools that are not installed."""
    render = ["render", "--profile", "abci3", "--nodes", "2", "--account", "gxx"]
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import click": [sys.executable, "-c", "import click"],
        "import click, jinja2, yaml": [sys.executable, "-c", "import click, jinja2, yaml"],
        "hpcjob --help": [str(_BIN / "hpcjob"), "--help"],
        "hpcjob render": [str(_BIN / "hpcjob"), *render],
        "hpcjob status (no jobs)": [str(_BIN / "hpcjob"), "status"],
        "torchx run --dryrun": [str(_BIN / "torchx"), "run", "--dryrun", "-s", "local_cwd", "utils.echo", "--msg", "a"],
        "reframe --list": [str(_BIN / "reframe"), "-c", str(empty), "--list"],
    }
    return {label: argv for label, argv in found.items() if shutil.which(argv[0])}


def cpu_ms(argv: list[str], environment: Mapping[str, str]) -> float:
    """Return the CPU time of one run. Raises CalledProcessError if a command of ours fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = argv[0].endswith(("hpcjob", "python")) or argv[0] == sys.executable
    subprocess.run(argv, env=environment, check=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU time of hpcjob's commands.")
    parser.add_argument("--runs", type=int, default=15, help="runs of each command (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object: label -> median, ms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        own = {name: str(Path(folder, name)) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        environment = {**os.environ, **own}
        commands = cases(empty)
        times: dict[str, list[float]] = {label: [] for label in commands}
        for turn in range(options.runs + 1):  # in turn, so that a busy moment falls on all alike
            for label, argv in commands.items():
                taken = cpu_ms(argv, environment)
                if turn:  # the first fills caches
                    times[label].append(taken)
    medians = {label: statistics.median(taken) for label, taken in times.items()}
    if options.json:
        print(json.dumps(medians))
        return
    for label, median in medians.items():
        target = f"   target {_TARGETS_MS[label]}" if label in _TARGETS_MS else ""
        print(f"{label:28} {median:7.1f} ms{target}")


if __name__ == "__main__":
    main()

"""What it costs to follow a job's files, and how soon a huge one is open; benchmarks/logs.py prints it too.

    python benchmarks/log_following.py

Following: a writer appends lines of NCCL and of a trainer to 64 rank files at 5 MB/s in sum; ``hpcjob tail -f`` reads
them. Its CPU time comes from /proc, and the delay of each iteration is taken from when the writer had written it to
when the reader printed it.

Opening: a sparse file of 100 GB whose last megabytes are a log. As installed, Python's compiled files are kept.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HPCJOB = [sys.executable, "-c", "import sys; from hpcjob.cli import main; sys.exit(main(sys.argv[1:]))"]
NCCL = (
    "node{host:02d}:{pid}:{tid} [{gpu}] NCCL INFO Channel {channel:02d}/0 : {rank}[{gpu}] -> {after}[0] "
    "via P2P/CUMEM/read\n"
)
# PYTHONDONTWRITEBYTECODE would have each start compile the program anew.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "LC_ALL": "C.UTF-8",
}
DELAY_LIMIT_S, CORE_LIMIT, OPENING_LIMIT_S = 1.0, 0.10, 0.3
TICK_S = 0.05
WARM_UP_S = 3.0


def nccl_lines(rank: int, size: int) -> bytes:
    """Return lines of NCCL of one rank, of about ``size`` bytes."""
    fields = {"host": rank // 8, "pid": 100 + rank, "tid": 200 + rank, "gpu": rank % 8, "rank": rank, "after": rank + 1}
    line = NCCL.format(channel=rank % 16, **fields)
    return (line * (size // len(line) + 1)).encode()


class Writer(threading.Thread):
    """Appends to all files at a steady rate, and notes when it wrote which iteration."""

    def __init__(self, paths: list[Path], bytes_per_s: float, training: str) -> None:
        super().__init__(daemon=True)
        self.files = [path.open("ab", buffering=0) for path in paths]
        self.block = [nccl_lines(rank, int(bytes_per_s * TICK_S / len(paths))) for rank in range(len(paths))]
        self.training = training
        self.wrote_s: dict[int, float] = {}
        self.bytes = 0
        self.done = threading.Event()

    def run(self) -> None:
        number, due_s = 0, time.monotonic()
        while not self.done.is_set():
            for file, block in zip(self.files, self.block, strict=True):
                self.bytes += file.write(block)
            number += 1
            self.wrote_s[number] = time.monotonic()
            self.bytes += self.files[number * 7 % len(self.files)].write(self.training.format(i=number).encode())
            due_s += TICK_S
            time.sleep(max(0.0, due_s - time.monotonic()))


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def following(training: str, *, ranks: int = 64, bytes_per_s: float = 5e6, seconds: float = 20.0) -> str:
    """Return in words what following costs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"12_{rank}_log.out" for rank in range(ranks)]
        for path in paths:
            path.touch()
        command = [*HPCJOB, "tail", folder, "-f", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as reader:
            assert reader.stdout is not None
            delays: list[float] = []
            writer = Writer(paths, bytes_per_s, training)
            began = {"s": 0.0}

            def listen() -> None:
                for line in reader.stdout or ():
                    now_s = time.monotonic()
                    event = json.loads(line)
                    if (
                        event["event"] == "iteration"
                        and began["s"]
                        and writer.wrote_s[event["iteration"]] >= began["s"]
                    ):
                        delays.append(now_s - writer.wrote_s[event["iteration"]])

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            writer.start()
            time.sleep(WARM_UP_S)
            began["s"], used_s, wrote = time.monotonic(), cpu_s(reader.pid), writer.bytes
            time.sleep(seconds)
            used_s, passed_s = cpu_s(reader.pid) - used_s, time.monotonic() - began["s"]
            wrote = writer.bytes - wrote
            writer.done.set()
            writer.join()
            time.sleep(1.5)
            reader.terminate()
            listener.join(5)
    share = used_s / passed_s
    return (
        f"follow {ranks} files, {wrote / passed_s / 1e6:.1f} MB/s: {100 * share:.1f} % of one core "
        f"({share / CORE_LIMIT:.2f} of the limit); delay {statistics.median(delays):.2f} s in the middle, "
        f"{max(delays):.2f} s at most ({max(delays) / DELAY_LIMIT_S:.2f} of the limit, {len(delays)} lines)"
    )


def opening(training: str, *, size: int = 100_000_000_000, count: int = 50) -> list[str]:
    """Return in words how soon the last lines of a huge file are shown, start of Python included."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "huge.log"
        with path.open("wb") as file:
            file.write(nccl_lines(0, 1_000_000))
            file.seek(size)
            for number in range(1, 20_001):
                file.write(training.format(i=number).encode())
                if number % 20 == 0:
                    file.write(nccl_lines(number % 64, 4000))
        held_mb = path.stat().st_blocks * 512 / 1e6
        for options in (["--raw"], ["--loss"], []):
            command = [*HPCJOB, "tail", str(path), "-n", str(count), *options]
            name = " ".join(["tail", "-n", str(count), *options])
            size_gb = path.stat().st_size / 1e9
            found.append(f"{name:<24} of {size_gb:.0f} GB ({held_mb:.0f} MB on disk): {least(command)}")
        found.append(f"{'python -c pass':<24} {least([sys.executable, '-c', 'pass'])}")
    return found


def least(command: list[str], repeats: int = 7) -> str:
    """Return the least time of a command, by the clock and of the CPU, in words."""
    by_clock, by_cpu = [], []
    for _ in range(repeats):  # the first fills what is kept between runs
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        by_clock.append(time.monotonic() - began_s)
        by_cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return f"{min(by_clock):.2f} s, of the CPU {min(by_cpu):.2f} s ({min(by_cpu) / OPENING_LIMIT_S:.2f} of the limit)"


def main() -> None:
    """Print both."""
    from logs import TRAINING

    print(*opening(TRAINING), following(TRAINING), sep="\n")


if __name__ == "__main__":
    main()

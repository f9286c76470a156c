"""``hpcjob explain`` on the logs of a large job with one fault in it: is it found, and how long does it take.

    python benchmarks/explain_plants.py [--ranks 8192] [--lines 2000] [--kind xid] [--folder /tmp]

One file a rank, made from the grammar of the tests (lines of NCCL, of Megatron's training, of torch's watchdog, of the
kernel); about 2.2 GB at full size. One row a fault: what was planted, what was found, CPU and wall seconds of the whole
command, its memory, and the load of the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.hpcjob.logs.jobs_grammar import KINDS, Job

RANKS_AT_ONCE = 64


def write(folder: Path, ranks: int, lines: int, seed: int, first: int) -> int:
    """Write the files of some ranks and return their bytes."""
    job = Job(ranks, lines, seed)
    size = 0
    for rank in range(first, min(first + RANKS_AT_ONCE, ranks)):
        size += (folder / f"12_{rank}_log.out").write_text("".join(f"{text}\n" for text in job.lines(rank)))
    return size


def explain(folder: Path) -> tuple[dict[str, object], float, float, int]:
    """Return the verdict, CPU and wall seconds, and memory in MiB."""
    code = (
        "import resource, sys; from hpcjob.cli import main; code = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr); sys.exit(code)"
    )
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", code, "explain", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), cpu_s, wall_s, int(done.stderr.split()[-1])


def found(job: Job, verdict: dict[str, object]) -> bool:
    """Whether class, rank and host are those of the plant."""
    plant = job.plant
    host = None if plant.kind == "missing" else plant.host
    return (
        verdict["code"] == plant.code
        and (plant.rank is None or verdict.get("rank") == plant.rank)
        and (host is None or verdict.get("host") == host)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8192)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--folder", default=None, help="where to write the logs")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        seed = KINDS.index(kind) + len(KINDS) * 7
        job = Job(options.ranks, options.lines, seed)
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            folder = Path(name)
            with ProcessPoolExecutor(2) as pool:
                tasks = [
                    pool.submit(write, folder, options.ranks, options.lines, seed, first)
                    for first in range(0, options.ranks, RANKS_AT_ONCE)
                ]
                size = sum(task.result() for task in tasks)
            verdict, cpu_s, wall_s, memory_mib = explain(folder)
        print(
            f"{kind:<12} {options.ranks} ranks x {options.lines} lines, {size / 1e9:.2f} GB: "
            f"{'found' if found(job, verdict) else 'NOT FOUND'} (code {verdict['code']}, rank {verdict.get('rank')}, "
            f"host {verdict.get('host')}) in {cpu_s:.1f} CPU s, {wall_s:.1f} s wall, {memory_mib} MiB, "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if not found(job, verdict):
            print(f"  planted: {job.plant}\n  verdict: {verdict['cause']}", flush=True)


if __name__ == "__main__":
    main()

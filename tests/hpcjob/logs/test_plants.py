"""One fault in the logs of hundreds of ranks, hidden among followers: found, with rank and host."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hpcjob.logs.explain import gather
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.sources import JobFiles, Source

from .jobs_grammar import KINDS, Job


def explained(sources: list[Source]) -> Verdict:
    return judge(gather(sources))


def check(job: Job, verdict: Verdict) -> None:
    plant = job.plant
    assert verdict.code == plant.code, (plant, verdict)
    if plant.rank is not None:
        assert verdict.rank == plant.rank, (plant, verdict)
    if plant.host is not None and plant.kind != "missing":
        assert verdict.host == plant.host, (plant, verdict)
    if plant.kind in ("xid", "killed-host", "sockets"):
        assert verdict.exclude == [plant.host], (plant, verdict)


def write_rank_files(job: Job, folder: Path) -> None:
    for rank in range(job.ranks):
        (folder / f"12_{rank}_log.out").write_text("".join(f"{text}\n" for text in job.lines(rank)))


def write_merged(job: Job, path: Path) -> None:
    """One file, the lines of all ranks interleaved at random, each rank's own in order."""
    queues = {rank: iter(job.lines(rank)) for rank in range(job.ranks)}
    names = random.Random(job.at)
    with path.open("w") as file:
        while queues:
            rank = names.choice(list(queues))
            for _ in range(names.randrange(1, 20)):
                text = next(queues[rank], None)
                if text is None:
                    del queues[rank]
                    break
                file.write(text + "\n")


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_rank_files(tmp_path: Path, seed: int) -> None:
    """One file a rank, as our own jobs write them."""
    job = Job(64, 120, seed)
    write_rank_files(job, tmp_path)
    check(job, explained(JobFiles(tmp_path).all()))


@pytest.mark.parametrize("seed", range(6, 6 + len(KINDS)))
def test_merged_log(tmp_path: Path, seed: int) -> None:
    """All ranks in one file, interleaved."""
    job = Job(64, 120, seed)
    write_merged(job, tmp_path / "slurm-12.out")
    check(job, explained([Source(tmp_path / "slurm-12.out")]))


@pytest.mark.parametrize("seed", range(20))
def test_many(tmp_path: Path, seed: int) -> None:
    """Twenty random places at 256 ranks."""
    job = Job(256, 60, 100 + seed)
    write_rank_files(job, tmp_path)
    check(job, explained(JobFiles(tmp_path).all()))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred(tmp_path: Path, seed: int) -> None:
    """Two hundred random places at 256 ranks x 500 lines, in turn as rank files and as one merged log."""
    job = Job(256, 500, 1000 + seed)
    if seed % 2:
        write_merged(job, tmp_path / "log")
        check(job, explained([Source(tmp_path / "log")]))
    else:
        write_rank_files(job, tmp_path)
        check(job, explained(JobFiles(tmp_path).all()))

"""The shipped example jobs, run as a user runs them, on a real Slurm of two nodes without GPUs."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest

from tests.cluster.testbed.bed import REPOSITORY
from tests.cluster.training import Training
from tests.cluster.user import BIN, User

pytestmark = pytest.mark.cluster

_STEP = re.compile(r"step (\d+)/\d+: \{'loss': ([\d.]+)")
STOPPED = 86


@pytest.fixture
def somebody(user: User) -> User:
    """A user with a copy of the examples in their folder."""
    shutil.copytree(REPOSITORY / "jobs", user.folder / "jobs")
    return user


def settings(**values: Any) -> list[str]:
    """Return the options that set parameters of a job."""
    return [word for key, value in values.items() for word in ("--set", f"params.{key}={value}")]


def losses(user: User, job: str) -> dict[int, float]:
    """Return the loss of each step, from the log itself."""
    return {int(step): float(loss) for step, loss in _STEP.findall(user.log(job))}


# --- fine-tuning ------------------------------------------------------------------------------------------------------


def test_finetuning_on_two_nodes(somebody: User) -> None:
    """A rank on each node; the loss falls, hpcjob reads it, and the result is a model of Hugging Face."""
    options = settings(output="tuned", batch=8, steps=6)
    job = somebody.submit(somebody.folder / "jobs/hf-finetune/tiny.yml", *options)
    assert somebody.wait(job, timeout_s=600) == 0, somebody.log(job)
    curve = losses(somebody, job)
    assert sorted(curve) == list(range(1, 7))
    assert curve[6] < curve[1]
    assert somebody.losses(job) == pytest.approx(curve)
    jobdir = somebody.jobdir(job)
    for rank in range(2):
        assert f"rank {rank} of 2 on node{rank + 1}" in (jobdir / f"{job}_{rank}_log.out").read_text()
    tuned = somebody.folder / "tuned" / "tuned"
    assert json.loads((tuned / "config.json").read_text())["model_type"] == "gpt_neox"
    assert (tuned / "model.safetensors").stat().st_size > 100_000


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_finetuning_is_the_same_on_any_number_of_processes(somebody: User) -> None:
    """One process, and four of two nodes under each launcher: one curve."""
    curves = {}
    tiny = somebody.folder / "jobs/hf-finetune/tiny.yml"
    for launcher, nodes, procs in (
        ("torchrun", 1, 1),
        ("torchrun", 2, 2),
        ("srun", 2, 2),
        ("mpirun", 2, 2),
        ("pdsh", 2, 2),
    ):
        options = settings(output=f"{launcher}{nodes}", launcher=launcher, batch=8, steps=20)
        shape = ["--nodes", str(nodes), "--set", f"procs_per_node={procs}"]
        job = somebody.submit(tiny, *options, *shape)
        assert somebody.wait(job, timeout_s=1200) == 0, somebody.log(job)
        curves[launcher, nodes] = losses(somebody, job)
    alone = curves.pop(("torchrun", 1))
    assert len(alone) == 20
    assert alone[20] < alone[1] - 1
    for case, curve in curves.items():
        assert curve == pytest.approx(alone, abs=2e-5, rel=0), case


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_finetuning_stops_in_time_and_goes_on(somebody: User) -> None:
    """Asked to stop it saves and ends with its code; submitted again it goes on, to the curve of one run."""
    tiny = somebody.folder / "jobs/hf-finetune/tiny.yml"
    options = settings(output="tuned", batch=8, steps=400)
    first = somebody.submit(tiny, *options)
    somebody.wait_for(first, lambda: len(losses(somebody, first)) > 3, "training", timeout_s=600)
    (somebody.jobdir(first) / "stop").touch()
    assert somebody.wait(first, timeout_s=600) == STOPPED
    begun = losses(somebody, first)
    second = somebody.submit(tiny, *options)
    assert somebody.wait(second, timeout_s=1200) == 0, somebody.log(second)
    rest = losses(somebody, second)
    assert min(rest) == max(begun) + 1
    assert max(rest) == 400
    assert f"goes on after step {max(begun)}" in somebody.log(second)


# --- tokenisation -----------------------------------------------------------------------------------------------------


def test_tokenisation_in_an_array_and_a_merge(somebody: User) -> None:
    """Three elements and the job behind them: byte for byte what one run writes."""
    lines = (json.dumps({"text": f"{number} times {number} is {number**2}. " * 9}) for number in range(400))
    (somebody.folder / "text.jsonl").write_text("\n".join(lines) + "\n")
    (somebody.folder / "parts").mkdir()
    data = [BIN / "neoxlite", "data"]
    vocabulary = ["--vocab-size", "300", "--output", "tokenizer.json"]
    somebody.run(*data, "train-tokenizer", "--input", "text.jsonl", *vocabulary)
    whole = ["--input", "text.jsonl", "--output-prefix", "whole", "--append-eod"]
    somebody.run(*data, "tokenize", *whole, "--tokenizer-type", "HFTokenizer", "--vocab-file", "tokenizer.json")

    told = settings(text="text.jsonl", tokenizer="tokenizer.json", shards=3, threads=1)
    array = somebody.submit(somebody.folder / "jobs/tokenize/shards.yml", *told)
    merged = somebody.submit(somebody.folder / "jobs/tokenize/merge.yml", "--after", "latest")
    assert somebody.wait(array, timeout_s=300) == 0, somebody.log(array)
    assert somebody.wait(merged, timeout_s=300) == 0, somebody.log(merged)
    assert [somebody.status(f"{array}_{index}")["state"] for index in (1, 2, 3)] == ["COMPLETED"] * 3
    assert len(list((somebody.folder / "parts").glob("shard_?of3_text_document.bin"))) == 3
    for suffix in ("bin", "idx"):
        made = (somebody.folder / f"corpus_text_document.{suffix}").read_bytes()
        assert made == (somebody.folder / f"whole_text_document.{suffix}").read_bytes()


# --- evaluation -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_evaluation_of_checkpoints_in_an_array(somebody: User, training: Training) -> None:
    """A run leaves two checkpoints; an element evaluates each; the table has the loss of both, the later one lower."""
    save = somebody.folder / "checkpoints"
    train = training.job(train_iters=8, checkpoint_factor=4, save=str(save))
    run = somebody.submit(somebody.write_job("run", train=train), "--nodes", "2")
    (somebody.folder / "losses").mkdir()
    (somebody.folder / "iterations.txt").write_text("4\n8\n")
    told = settings(config=training.config, load=save)
    evaluate = somebody.folder / "jobs/evaluate/checkpoints.yml"
    array = somebody.submit(evaluate, *told, "--after", run)
    table = somebody.submit(somebody.folder / "jobs/evaluate/table.yml", "--after", array)
    assert somebody.wait(run, timeout_s=600) == 0, somebody.log(run)
    assert somebody.wait(array, timeout_s=600) == 0, somebody.log(array)
    assert somebody.wait(table, timeout_s=600) == 0, somebody.log(table)
    rows = [line.split("\t") for line in (somebody.folder / "losses" / "table.tsv").read_text().splitlines()]
    place = {name: number for number, name in enumerate(rows[0])}
    assert [(row[place["result"]], row[place["iteration"]]) for row in rows[1:]] == [("4", "4"), ("8", "8")]
    first, last = (float(row[place["splits.valid.loss"]]) for row in rows[1:])
    assert last < first

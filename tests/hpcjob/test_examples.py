"""The job files that are shipped as examples: each makes a script for every cluster on which it makes sense."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from hpcjob.cli.options import plans_from_options
from hpcjob.errors import InputError
from hpcjob.plan import Plan
from hpcjob.render import render
from tests.hpcjob.loading.files import write

REPOSITORY = Path(__file__).parents[2]
OPTIONS = REPOSITORY / "tests/golden/megatron_deepspeed/options.json"
CLUSTERS = {
    "abci3": "PBS",
    "miyabi": "PBS",
    "abci2": "$",
    "tsubame": "$",
    "lab": "SBATCH",
    "wisteria": "PJM",
    "local": None,
}
# What each example wants to be told; the paths are made by `place`.
SETTINGS: dict[str, dict[str, str]] = {
    "hf-finetune/job.yml": {"params.model": "model", "params.data": "data"},
    "hf-finetune/tiny.yml": {},
    "tokenize/shards.yml": {"params.text": "text", "params.tokenizer": "tokenizer"},
    "tokenize/merge.yml": {},
    "evaluate/checkpoints.yml": {"params.config": "config", "params.load": "load"},
    "evaluate/table.yml": {},
    "megatron-deepspeed/gpt-6.7B-2node-dp1-tp4-pp4.yml": {
        "params.repository": "repository",
        "params.vocab": "vocab",
        "params.merges": "merges",
    },
}
# The line that asks for the elements of an array of 1 to 8, and of three: sbatch(1), qsub(1B), qsub(1).
EIGHT = {"SBATCH": "#SBATCH --array=1-8", "PBS": "#PBS -J 1-8", "$": "#$ -t 1-8"}
THREE = {"SBATCH": "#SBATCH --array=0-2%4", "PBS": "#PBS -J 0-2%4", "$": "#$ -t 1-3"}


@pytest.fixture
def place(own_place: Path) -> Path:
    """A folder with all that the examples are told of, and the examples where a checkout has them."""
    for name in ("model", "parts", "load", "losses", "repository"):
        (own_place / name).mkdir()
    for name in ("data", "text", "tokenizer", "config", "vocab", "merges"):
        write(own_place / name, "")
    write(own_place / "iterations.txt", "1000\n2000\n4000\n")
    (own_place / "jobs").symlink_to(REPOSITORY / "jobs")
    return own_place


def plan_of(job: str, profile: str, **options: str) -> Plan:
    """Return the plan of an example."""
    settings = [f"{key}={value}" for key, value in SETTINGS[job].items()]
    return plans_from_options(job=f"jobs/{job}", profile=profile, account="gxx", settings=settings, **options)[0]


def nodes_for(job: str, profile: str) -> dict[str, str]:
    """Return the options with which a job of 16 GPUs, or of two nodes, is had there."""
    if profile == "local":
        return {"nodes": "1"} if "finetune" in job else {}
    if "megatron" in job:
        gpus = {"tsubame": 4, "miyabi": 1}.get(profile, 8)
        return {"nodes": str(16 // gpus), "gpus_per_node": str(gpus)}
    return {}


def test_every_example_is_tried() -> None:
    """No job file of a folder of examples is left out below; those of 2.7B have tests of their own."""
    jobs = REPOSITORY / "jobs"
    examples = {str(path.relative_to(jobs)) for path in jobs.glob("*/*.yml")}
    assert {job for job in examples if not job.startswith("2.7B/")} == set(SETTINGS)


@pytest.mark.parametrize("profile", CLUSTERS)
@pytest.mark.parametrize("job", SETTINGS)
def test_renders_everywhere(place: Path, job: str, profile: str) -> None:
    """bash reads the script; an array has its directive; what a cluster cannot run is refused in words."""
    if profile == "wisteria" and job in ("tokenize/shards.yml", "evaluate/checkpoints.yml"):
        with pytest.raises(InputError, match=r"array: wisteria does not run arrays"):
            render(plan_of(job, profile))
        return
    if profile == "local" and "megatron" in job:
        with pytest.raises(InputError, match="8 requested, but a node of local has 0"):
            plan_of(job, profile, nodes="1")
        return
    script = render(plan_of(job, profile, **nodes_for(job, profile)))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    lines = script.splitlines()
    dialect = CLUSTERS[profile]
    if dialect and job == "tokenize/shards.yml":
        assert EIGHT[dialect] in lines
    if dialect and job == "evaluate/checkpoints.yml":
        assert THREE[dialect] in lines


def test_cpu_work_takes_the_queue_of_cpus(place: Path) -> None:
    """rt_HC is ABCI 3.0's node without GPUs."""
    for job in ("tokenize/shards.yml", "tokenize/merge.yml", "evaluate/table.yml"):
        assert "#PBS -q rt_HC" in render(plan_of(job, "abci3")).splitlines()


def test_one_gpu_where_nodes_are_shared(place: Path) -> None:
    """As the comment of the evaluation says."""
    assert "#PBS -q rt_HG" in render(plan_of("evaluate/checkpoints.yml", "abci3", queue="rt_HG")).splitlines()
    lines = render(plan_of("evaluate/checkpoints.yml", "lab", gpus_per_node="1")).splitlines()
    assert "#SBATCH --gpus-per-node=1" in lines


@pytest.mark.parametrize(
    ("job", "key"),
    [(job, key) for job, settings in SETTINGS.items() for key in settings if job != "tokenize/merge.yml"],
)
def test_what_is_missing_is_asked_for(place: Path, job: str, key: str) -> None:
    """Each value that has no default is named with what it is."""
    told = [f"{name}={value}" for name, value in SETTINGS[job].items() if name != key]
    with pytest.raises(InputError) as error:
        plans_from_options(job=f"jobs/{job}", profile="lab", settings=told)
    assert f"{key}: no value given (" in str(error.value)


# --- Megatron-DeepSpeed ---------------------------------------------------------------------------------------------


def test_megatron_takes_every_option() -> None:
    """Names, types and choices are those that the parser of Megatron-DeepSpeed has (see the file's `source`)."""
    known = json.loads(OPTIONS.read_text())["options"]
    job = yaml.safe_load((REPOSITORY / "jobs/megatron-deepspeed/gpt-6.7B-2node-dp1-tp4-pp4.yml").read_text())
    words = job["command"][2:]
    assert len(words) > 40
    for word in words:
        name, has_value, value = word.partition("=")
        option = known[name]
        assert bool(has_value) == option["value"], word
        if "{params." not in value and has_value:
            {"int": int, "float": float}.get(option["type"], str)(value)
            assert value in option.get("choices", [value])


def test_megatron_batch_and_layout_agree(place: Path) -> None:
    """4 x 4 slices and stages are 16 GPUs; DeepSpeed is told the batch that Megatron is told."""
    plan = plan_of("megatron-deepspeed/gpt-6.7B-2node-dp1-tp4-pp4.yml", "abci3")
    options = dict(word.lstrip("-").partition("=")[::2] for word in plan.steps[0].argv[2:])
    slices, stages = int(options["tensor-model-parallel-size"]), int(options["pipeline-model-parallel-size"])
    assert plan.world_size == slices * stages == 16
    settings = json.loads((REPOSITORY / "jobs/megatron-deepspeed/ds_config.json").read_text())
    assert settings["train_batch_size"] == int(options["global-batch-size"])
    assert settings["train_micro_batch_size_per_gpu"] == int(options["micro-batch-size"])
    assert settings["zero_optimization"]["stage"] == int(options["zero-stage"])
    assert settings["gradient_clipping"] == float(options["clip-grad"])
    assert int(options["train-samples"]) * int(options["seq-length"]) == 2 * int(options["train-tokens"])
    assert shlex.join(plan.steps[0].argv[:2]) == "python repository/pretrain_gpt.py"

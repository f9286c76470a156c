"""A job and a profile brought together."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
import yaml

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.loading.profiles import load_profile
from hpcjob.plan import Plan
from hpcjob.planning.make import make_plan
from hpcjob.profile import ClusterProfile


def plan(job: dict[str, Any], profile: str | ClusterProfile = "abci3", **options: Any) -> Plan:
    """Return the plan of ``job`` on a shipped profile, with an account so that there is no note of a missing one."""
    cluster = load_profile(profile)[0] if isinstance(profile, str) else profile
    given: dict[str, Any] = {"name": "job", "interpreter": "/venv/bin/python", "account": "gxx", **options}
    return make_plan(msgspec.convert({"command": ["a"], **job}, JobFile), cluster, **given)


def refusal(job: dict[str, Any], profile: str | ClusterProfile = "abci3") -> str:
    """Return message and hint with which the job is refused."""
    with pytest.raises(InputError) as error:
        plan(job, profile)
    return str(error.value)


@pytest.mark.parametrize(
    ("profile", "job", "procs", "gpus"),
    [
        ("abci3", {"nodes": 2}, 8, 8),
        ("abci3", {"gpus_per_node": 4}, 4, 4),
        ("abci3", {"procs_per_node": 1}, 1, 8),
        ("abci3", {"queue": "rt_HG"}, 1, 1),
        ("abci2", {"queue": "rt_F"}, 4, 4),
        ("miyabi", {"nodes": 16}, 1, 1),
        ("local", {}, 1, 0),
        ("local", {"procs_per_node": 2}, 2, 0),
        ("abci3", {"kind": "cpu"}, 1, 0),
    ],
)
def test_topology(profile: str, job: dict[str, Any], procs: int, gpus: int) -> None:
    """One rank a GPU of the job's queue; without GPUs one; other kinds than training start one process."""
    made = plan(job, profile)
    assert (made.procs_per_node, made.gpus_per_node) == (procs, gpus)
    assert made.world_size == procs * job.get("nodes", 1)


@pytest.mark.parametrize(
    ("profile", "job", "message"),
    [
        (
            "abci3",
            {"gpus_per_node": 9},
            "gpus_per_node: 9 requested, but a node of abci3 (rt_HF) has 8\nask for at most 8",
        ),
        (
            "abci3",
            {"queue": "rt_HG", "gpus_per_node": 2},
            "gpus_per_node: 2 requested, but a node of abci3 (rt_HG) has 1\n",
        ),
        (
            "abci3",
            {"nodes": 129},
            "nodes: 129 requested, but abci3 (rt_HF) allows 128 per job\nask for at most 128 nodes",
        ),
        (
            "abci3",
            {"nodes": 2, "queue": "rt_HG"},
            "nodes: 2 requested, but abci3 (rt_HG) allows 1 per job\nask for at most 1 node",
        ),
        ("local", {"nodes": 2}, "nodes: 2 requested, but local allows 1 per job\n"),
        (
            "local",
            {"gpus_per_node": 4},
            "gpus_per_node: 4 requested, but a node of local has 0\n"
            "ask for none; if its nodes have some: --set profile.node.gpus=4",
        ),
        (
            "abci3",
            {"walltime": "168:00:01"},
            "walltime: 168:00:01 is longer than abci3 (rt_HF) allows for 1 node (168:00:00)",
        ),
        (
            "wisteria",
            {"nodes": 5, "walltime": "48:00:00"},
            "walltime: 48:00:00 is longer than wisteria (regular-a) allows for 5 nodes (24:00:00)\nask",
        ),
        (
            "wisteria",
            {"queue": "debug-a", "walltime": "1:00:00"},
            "walltime: 01:00:00 is longer than wisteria (debug-a)",
        ),
        ("abci3", {"walltime": "soon"}, "walltime: 'soon' is not a duration\n"),
        (
            "local",
            {"name": "latest"},
            "name: 'latest' is the newest job to every command\ngive another name: --name NAME",
        ),
        (
            "local",
            {"python": {"venv": "v", "conda": "c"}},
            "python: one of venv, conda, executable, container is the Python, this one has venv and conda\n",
        ),
        ("local", {"python": {}}, "python: one of venv, conda, executable, container is the Python, this one has none"),
        ("abci3", {"memory": "lots"}, "memory: 'lots' is not a memory size\n"),
        (
            "abci3",
            {"train": {"configs": ["a"]}},
            "train, command, steps: a job has one of these, this one has train and command",
        ),
        ("abci3", {"command": None}, "train, command, steps: a job has one of these, this one has none of them\n"),
        (
            "abci3",
            {"command": None, "steps": []},
            "train, command, steps: a job has one of these, this one has none of them\n",
        ),
        (
            "abci3",
            {"command": None, "steps": [{"name": "x"}]},
            "steps[0]: step 'x' needs one of `command` and `train`\n",
        ),
    ],
)
def test_what_does_not_fit_the_cluster(profile: str, job: dict[str, Any], message: str) -> None:
    """The key, the value, the limit and its queue are named before anything waits in a queue."""
    assert refusal(job, profile).startswith(message)


def test_more_ranks_than_gpus() -> None:
    """A training run is refused before it waits in a queue; on the CPUs, and of a command, any number may run."""
    two = {"procs_per_node": 2, "command": None, "train": {"configs": ["a"]}}
    assert refusal(two, "miyabi") == (
        "procs_per_node: 2 ranks on a node of miyabi (regular-g) with 1 GPU, "
        "and each rank of a training run takes one\n"
        "--set procs_per_node=1; or train on the CPUs: --env DS_ACCELERATOR=cpu"
    )
    assert refusal({**two, "gpus_per_node": 1}, "lab").startswith("procs_per_node: 2 ranks on a node of lab with 1 GPU")
    for launcher in ("mpirun", "torchrun", "srun", "pdsh"):
        asked = {**two, "gpus_per_node": 1, "launcher": launcher}
        assert refusal(asked, "lab").startswith("procs_per_node: 2 ranks on a node of lab with 1 GPU")
    stepped = {**two, "train": None, "steps": [{"name": "a", "train": {"configs": ["a"]}, "launcher": "mpirun"}]}
    assert refusal({**stepped, "queue": "rt_HG"}).startswith("procs_per_node: 2 ranks on a node of abci3 (rt_HG)")
    assert plan({**two, "env": {"DS_ACCELERATOR": "cpu"}}, "miyabi").procs_per_node == 2
    assert plan({**two, "gpus_per_node": 0}, "lab").procs_per_node == 2
    assert plan(two, "local").procs_per_node == 2
    assert plan({"procs_per_node": 2}, "miyabi").procs_per_node == 2
    steps = [{"name": "a", "train": {"configs": ["a"]}, "env": {"DS_ACCELERATOR": "cpu"}}]
    assert plan({"procs_per_node": 2, "command": None, "steps": steps}, "miyabi").procs_per_node == 2


@pytest.mark.parametrize(
    ("profile", "job", "held"),
    [
        ("lab", {"gpus_per_node": 0}, None),
        ("lab", {"gpus_per_node": 2}, None),
        ("lab", {"gpus_per_node": 2, "procs_per_node": 1}, "1 rank on each node of 2 GPUs"),
        ("lab", {"procs_per_node": 2}, "2 ranks on each node of 8 GPUs"),
        ("lab", {"gpus_per_node": 2, "exclusive": True}, "2 ranks on each node of 8 GPUs"),
        ("abci3", {"gpus_per_node": 2}, "2 ranks on each node of 8 GPUs"),
    ],
)
def test_gpus_that_stay_idle(profile: str, job: dict[str, Any], held: str | None) -> None:
    """Those that a job holds: what it asked for where GPUs are given by number, else all of its nodes."""
    assert plan(job, profile).notes == (() if held is None else (f"{held}: the others stay idle",))


def test_limits_of_a_size() -> None:
    """Aquarius gives 48 hours up to 4 nodes, 24 hours up to 8 (service/job.php of the site)."""
    assert plan({"nodes": 4, "walltime": "48:00:00"}, "wisteria").walltime_s == 48 * 3600
    assert plan({"nodes": 8, "walltime": "24:00:00"}, "wisteria").walltime_s == 24 * 3600


def test_default_walltime_stays_within_the_queue() -> None:
    """A queue of 30 minutes gets 30 minutes by default, not the profile's hour."""
    assert plan({"queue": "debug-a"}, "wisteria").walltime_s == 1800
    assert plan({}, "wisteria").walltime_s == 3600


@pytest.mark.parametrize(
    ("walltime", "seconds", "note"),
    [
        (12, 12, "walltime: 12 is taken for seconds; write 12h for hours, 12m for minutes"),
        ("12:00", 720, "walltime: 12:00 is taken for minutes and seconds; write 12:00:00 for hours and minutes"),
        (3600, 3600, None),
        ("12h", 43200, None),
        ("0:12:00", 720, None),
        ("1-00:00", 86400, None),
    ],
)
def test_a_walltime_that_may_be_meant_otherwise(walltime: str | int, seconds: int, note: str | None) -> None:
    """Slurm and PBS read 12:00 as twelve minutes; who means hours is told before the job is cut off."""
    made = plan({"walltime": walltime})
    assert (made.walltime_s, made.notes) == (seconds, () if note is None else (note,))


def test_a_queue_that_is_not_known_is_noted() -> None:
    """A reservation or a group's own queue is not refused; near names are offered, limits not applied."""
    made = plan({"queue": "rt_hf", "nodes": 500, "walltime": "720:00:00"})
    assert made.notes == (
        "queue rt_hf is not among those known of abci3, its limits are not checked (near: rt_HF, rt_HC, rt_HG)",
    )
    assert plan({"queue": "R1234"}).notes == (
        "queue R1234 is not among those known of abci3, its limits are not checked",
    )
    assert plan({"queue": "gpu"}, "lab").notes == ()


@pytest.mark.parametrize(
    ("profile", "note"),
    [
        ("abci3", "no account given; abci3 refuses a submission without one (--account, `account:` or HPCJOB_ACCOUNT)"),
        ("tsubame", "no account given; tsubame may run it as a trial or charge your default group"),
        ("lab", None),
        ("local", None),
    ],
)
def test_a_missing_account_is_noted_where_it_matters(profile: str, note: str | None) -> None:
    """It is no error of a plan: `render` works without."""
    notes = plan({}, profile, account=None).notes
    assert len(notes) == (0 if note is None else 1)
    assert note is None or notes[0].startswith(note)


_EVERY = ("mpirun", "torchrun", "srun", "pdsh")
_WORKS = {
    "abci3": {"mpirun", "torchrun", "pdsh"},
    "abci2": {"mpirun", "torchrun", "pdsh"},
    "tsubame": {"mpirun", "torchrun", "pdsh"},
    "miyabi": {"mpirun", "torchrun", "pdsh"},
    "wisteria": {"mpirun", "torchrun"},
    "lab": {"mpirun", "torchrun", "srun", "pdsh"},
    "local": {"mpirun", "torchrun"},
}
_REASONS = {
    "srun": "srun is part of Slurm, this cluster runs ",
    "pdsh": "its compute nodes allow no ssh between them",
    "local": "pdsh reaches other nodes, this machine is one",
}


@pytest.mark.parametrize("launcher", _EVERY)
@pytest.mark.parametrize("profile", _WORKS)
def test_launchers(profile: str, launcher: str) -> None:
    """srun on Slurm only; pdsh where ssh is free or has a switch, and never on one machine; the others everywhere."""
    if launcher in _WORKS[profile]:
        assert plan({"launcher": launcher}, profile).launchers == (launcher,)
        return
    reason = _REASONS["local" if (profile, launcher) == ("local", "pdsh") else launcher]
    message = refusal({"launcher": launcher}, profile)
    assert message.startswith(f"launcher: {launcher} on {profile}: {reason}")
    hint = message.splitlines()[1]
    assert hint == f"use {' or '.join(other for other in _EVERY if other in _WORKS[profile])}"


def test_launchers_without_open_mpi() -> None:
    """mpirun is refused, and torchrun where its agents are started by mpirun; on Slurm torchrun still works."""
    for name in ("abci3", "lab"):
        profile = load_profile(name)[0]
        bare = msgspec.structs.replace(profile, launcher=msgspec.structs.replace(profile.launcher, mpi=False))
        assert refusal({"launcher": "mpirun"}, bare).startswith(f"launcher: mpirun on {name}: it has no Open MPI\n")
        if name == "lab":
            assert plan({"launcher": "torchrun"}, bare).launchers == ("torchrun",)
        else:
            assert "started by mpirun here, and it has no Open MPI" in refusal({"launcher": "torchrun"}, bare)


def test_every_default_launcher_works() -> None:
    """A job that names no launcher is planned on each shipped profile."""
    for name in _WORKS:
        assert plan({}, name).launchers[0] in _WORKS[name]


def test_steps() -> None:
    """Commands among steps start once, training on all ranks; each step may say otherwise."""
    made = plan(
        {
            "command": None,
            "python": {"venv": "v"},
            "steps": [
                {"name": "data", "command": ["prepare"], "env": {"A": "1"}},
                {"name": "all", "command": ["bench"], "launcher": "mpirun"},
                {"name": "train", "train": {"configs": ["2-7B.yml"]}, "python": {"conda": "c"}},
            ],
        }
    )
    data, everywhere, train = made.steps
    assert (data.launcher, everywhere.launcher, train.launcher) == ("none", "mpirun", "mpirun")
    assert (data.is_train, train.is_train) == (False, True)
    assert (data.python.venv, train.python.conda) == ("v", "c")
    assert data.env == {"A": "1"}


def test_a_job_of_another_kind_starts_one_process() -> None:
    """kind: transfer runs its command once, whatever the cluster's launcher."""
    assert plan({"kind": "transfer"}).launchers == ("none",)


def test_a_command_beside_no_steps() -> None:
    """An empty list is no work, and the command is started as ever."""
    assert plan({"steps": []}, "lab").launchers == plan({}, "lab").launchers


def test_training_command() -> None:
    """Overrides become --set words that YAML reads back as the same values, nested ones by their path."""
    values = {
        "train_iters": 10,
        "lr": 6e-5,
        "split": "969,30,1",
        "on": "no",
        "text": "a: b # c",
        "名": "実験\n2",
        "empty": None,
        "paths": ["a b", "c"],
        "optimizer": {"params": {"lr": 1.6e-4, "betas": [0.9, 0.95]}},
        "none": {},
    }
    made = plan({"command": None, "train": {"configs": ["a.yml", "-b.yml"], "conf_dir": "conf", "set": values}})
    argv = list(made.steps[0].argv)
    assert argv[:6] == ["python", "-m", "neoxlite", "train", "-d", "conf"]
    assert argv[-3:] == ["--", "a.yml", "-b.yml"]
    words = [word for flag, word in itertools.pairwise(argv) if flag == "--set"]
    assert all("\n" not in word for word in words)
    read = {key: yaml.safe_load(text) for key, _, text in (word.partition("=") for word in words)}
    flat = {key: value for key, value in values.items() if key != "optimizer"}
    assert read == {**flat, "optimizer.params.lr": 1.6e-4, "optimizer.params.betas": [0.9, 0.95]}


def test_environment_and_modules() -> None:
    """The job's variables win over the profile's; its modules replace them, an empty list loads none."""
    made = plan({"env": {"CUDA_DEVICE_MAX_CONNECTIONS": "2", "A": "b"}, "modules": [], "module_use": ["/m"]})
    assert made.env["CUDA_DEVICE_MAX_CONNECTIONS"] == "2"
    assert made.env["A"] == "b"
    assert "NCCL_IB_HCA" in made.env
    assert made.modules == ()
    assert made.module_use == ("/m",)


@pytest.mark.parametrize(
    ("walltime", "before", "planned"), [("1:00:00", 300, 300), ("0:05:00", 300, 75), ("1:00:00", 0, 0)]
)
def test_stop_before_the_walltime(walltime: str, before: int, planned: int) -> None:
    """A short job keeps three quarters of its time for work, and still saves before the end; 0 asks for nothing."""
    assert plan({"walltime": walltime, "stop_before_s": before}).stop_before_s == planned

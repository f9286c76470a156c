"""Parameters of the executors: submitit's shared ones, prefixed ones of their own, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import submitit

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.plan import Plan
from hpcjob.plugins.parameters import OWN, PrefixedNames, UnknownParameterError
from hpcjob.render import render
from tests.hpcjob.jobs import fake_command, with_path

pytestmark = pytest.mark.usefixtures("installed")
PLUGINS = ("hpcjob", "pbs", "gridengine", "pjm")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who runs the tests."""
    for name in ("HPCJOB_PROFILE", "HPCJOB_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)


def executor_of(cluster: str, **parameters: Any) -> submitit.AutoExecutor:
    """Return an executor with parameters."""
    executor = submitit.AutoExecutor("logs", cluster=cluster)
    executor.update_parameters(**parameters)
    return executor


def plan_of(cluster: str, count: int = 1, **parameters: Any) -> Plan:
    """Return the plan of a job with parameters."""
    plan: Plan = executor_of(cluster, **parameters)._executor.plan(count)
    return plan


def directives(plan: Plan) -> list[str]:
    """Return the lines of the script that the scheduler reads."""
    prefix = {"pbs": "#PBS ", "gridengine": "#$ ", "pjm": "#PJM ", "slurm": "#SBATCH "}[plan.profile.scheduler.type]
    lines = render(plan, jobdir="/work/x/job").splitlines()
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


@pytest.mark.parametrize("name", ["partition", "account", "qos", "exclude", "setup"])
def test_slurms_own_unprefixed_names_stay_slurms(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit takes ``account`` for ``slurm_account``, with a warning; a plugin that declares one gets it instead."""
    fake_command(tmp_path / "bin", "srun", "exit 1")
    monkeypatch.setenv("PATH", with_path(tmp_path / "bin"))
    executor = submitit.AutoExecutor(tmp_path, cluster="slurm")
    value = ["true"] if name == "setup" else "word"
    with pytest.warns(UserWarning, match=f"Setting '{name}' is deprecated. Use '(slurm|local)_{name}' instead"):
        executor.update_parameters(**{name: value})
    assert name == "setup" or executor.parameters == {name: "word"}


@pytest.mark.parametrize("cluster", PLUGINS)
def test_each_takes_its_own(cluster: str) -> None:
    """A prefixed name is its executor's; that of another is let pass and does nothing; an unprefixed one is refused."""
    others = {f"{other}_queue": other for other in PLUGINS}
    assert executor_of(cluster, **others).parameters == {"queue": cluster}
    with pytest.raises(NameError, match="Parameter 'queue' need to be prefixed"):
        executor_of(cluster, queue="x")


@pytest.mark.parametrize("cluster", PLUGINS)
def test_every_own_parameter_is_a_key_of_a_job_file(cluster: str) -> None:
    """With the profile's name; submitit can ask for each, and sees none to make an alias of."""
    assert set(OWN) - {"profile"} <= set(JobFile.__struct_fields__)
    names = PrefixedNames.of(cluster)
    assert all(name in names for name in OWN)
    assert list(names) == []


@pytest.mark.parametrize("cluster", ["local", *PLUGINS])
def test_a_misspelt_name_is_told_in_a_line(cluster: str) -> None:
    """Also where the parameter is for another executor than the one in use."""
    with pytest.raises(UnknownParameterError) as told:
        executor_of(cluster, pbs_quue="x")
    assert str(told.value) == "pbs_quue: no such parameter\ndid you mean pbs_queue?"
    with pytest.raises(NameError, match="pbs_zzz: no such parameter\nthere are pbs_profile, pbs_queue, pbs_account, "):
        executor_of(cluster, pbs_zzz="x")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"pbs_extra": "-l x=1"}, "pbs_extra: expected a list, got '-l x=1'"),
        ({"pbs_exclusive": "yes"}, "pbs_exclusive: expected true or false, got 'yes'"),
        ({"pbs_python": {"virtualenv": "x"}}, "pbs_python: there is no pbs_python.virtualenv"),
        ({"nodes": 0}, "nodes: expected a whole number >= 1, got 0"),
        ({"timeout_min": 0}, "timeout_min: 0 is not a number of minutes"),
        ({"pbs_walltime": "1:xx"}, "pbs_walltime: '1:xx' is not a duration"),
    ],
)
def test_a_wrong_value_is_told_when_it_is_given(parameters: dict[str, Any], words: str) -> None:
    """The message begins with the parameter's name and says what is expected; nothing is kept."""
    executor = executor_of("pbs", name="before")
    with pytest.raises(InputError) as told:
        executor.update_parameters(**parameters)
    assert told.value.message == words
    assert executor.parameters == {"name": "before"}


@pytest.mark.parametrize(
    ("cluster", "parameters", "words"),
    [
        ("hpcjob", {}, "hpcjob_profile: no profile given"),
        ("hpcjob", {"hpcjob_profile": "wisterria"}, "no profile 'wisterria'"),
        ("pbs", {"pbs_profile": "wisteria"}, "pbs_profile: wisteria is a cluster of pjm, this executor submits to pbs"),
        ("pbs", {"pbs_profile": 3}, "pbs_profile: 3 is not a profile"),
        ("pbs", {"pbs_profile": {"scheduler": {"selct": "x"}}}, "cluster profile has no key 'scheduler.selct'"),
        (
            "hpcjob",
            {"hpcjob_profile": "wisteria", "nodes": 9},
            "nodes: 9 requested, but wisteria (regular-a) allows 8 per job",
        ),
        ("pbs", {"pbs_qos": "high"}, "pbs_qos: pbs does not support this\nremove pbs_qos from the job"),
        ("pjm", {"pjm_launcher": "srun"}, "pjm_launcher: srun on pjm: srun is part of Slurm"),
        ("pbs", {"pbs_queue": "a b"}, "pbs_queue: pbs cannot take "),
        ("pbs", {"pbs_env": {"RANK": "1"}}, "pbs_env.RANK: is set by the job script itself\n"),
        (
            "hpcjob",
            {"hpcjob_profile": "wisteria", "timeout_min": 9999},
            "timeout_min: 166:39:00 is longer than wisteria (regular-a) allows for 1 node (48:00:00)\n"
            "ask for less and resume from the checkpoint (hpcjob_stop_before_s saves in time)",
        ),
        (
            "hpcjob",
            {"hpcjob_profile": "wisteria", "hpcjob_walltime": "9d"},
            "hpcjob_walltime: 216:00:00 is longer than",
        ),
        ("hpcjob", {"hpcjob_profile": "abci3", "gpus_per_node": 9}, "gpus_per_node: 9 requested, but a node of abci3"),
    ],
)
def test_what_does_not_fit_the_cluster(cluster: str, parameters: dict[str, Any], words: str, here: Path) -> None:
    """Refused when a function is submitted, before anything is written."""
    executor = executor_of(cluster, **parameters)
    with pytest.raises(InputError) as told:
        executor.submit(pow, 2, 3)
    assert words in str(told.value)
    assert not list(here.rglob("*.pkl"))


def test_a_missing_account_is_told_by_its_parameter() -> None:
    """In the warning, and in what it is refused with."""
    executor = executor_of("hpcjob", hpcjob_profile="abci3")
    with (
        pytest.warns(UserWarning, match=r"refuses a submission without one \(hpcjob_account or HPCJOB_ACCOUNT\)$"),
        pytest.raises(InputError) as told,
    ):
        executor.submit(pow, 2, 3)
    assert str(told.value) == (
        "hpcjob_account: none given, abci3 refuses a submission without one\nhpcjob_account or HPCJOB_ACCOUNT"
    )


@pytest.mark.parametrize("times", [-1, True, 1.5, "3"])
def test_a_number_of_restarts_is_none_below_0(times: Any) -> None:
    """A count that would never be reached is refused when it is given."""
    with pytest.raises(InputError) as told:
        submitit.AutoExecutor("logs", cluster="pbs", pbs_max_num_timeout=times)
    assert str(told.value) == f"max_num_timeout: {times!r} is not a number of times\ngive a whole number, 0 or above"


def test_pickles_that_are_too_large_are_refused(here: Path) -> None:
    """As submitit does; they do not stay."""
    executor = submitit.AutoExecutor("logs", cluster="pbs", pbs_max_pickle_size_gb=1e-5)
    with pytest.raises(InputError, match="pickles of 2 functions are more than 1e-05 GiB"):
        executor.map_array(len, [b"x" * 20_000] * 2)
    assert not list((here / "logs").iterdir())


def test_pbs_directives() -> None:
    """qsub(1B): chunks of CPUs, MPI ranks, GPUs and memory; the walltime; no environment handed down."""
    asked = {"nodes": 2, "tasks_per_node": 4, "cpus_per_task": 6, "gpus_per_node": 4, "mem_gb": 32, "timeout_min": 90}
    own = {"pbs_queue": "gpu", "pbs_account": "gg53", "pbs_extra": ["-l place=scatter"]}
    lines = directives(plan_of("pbs", name="my run", **asked, **own))
    for line in (
        "-N my_run",
        "-P gg53",
        "-q gpu",
        "-l select=2:ncpus=24:mpiprocs=4:ngpus=4:mem=32768mb",
        "-l walltime=01:30:00",
        "-l place=scatter",
    ):
        assert line in lines
    assert "-l select=1:ncpus=1:mpiprocs=1" in directives(plan_of("pbs")), "no GPUs, no account are asked for"
    assert not [line for line in directives(plan_of("pbs")) if line.startswith(("-P", "-V"))]


def test_minutes_are_no_bare_number_of_seconds() -> None:
    """A walltime of 60 without a unit is told; one minute by submitit's own parameter is none."""
    plan = plan_of("hpcjob", hpcjob_profile="lab", timeout_min=1)
    assert (plan.walltime_s, [note for note in plan.notes if "seconds" in note]) == (60, [])
    assert [note for note in plan_of("hpcjob", hpcjob_profile="lab", hpcjob_walltime=60).notes if "seconds" in note]


def test_after_another_job() -> None:
    """By its id, as in a job file; of one that is not recorded the scheduler's own is meant."""
    assert "-W depend=afterok:12.pbs1" in directives(plan_of("pbs", pbs_after="12.pbs1"))
    assert "--dependency=afterany:12" in directives(
        plan_of("hpcjob", hpcjob_profile="lab", hpcjob_after={"any": ["12"]})
    )


def test_gridengine_and_pjm_directives() -> None:
    """submit(1) of Grid Engine; the user guide of Fugaku for PJM, whose groups pay by ``-g``."""
    lines = directives(plan_of("gridengine", 10, gridengine_extra=["-pe smp 4"], gridengine_array_limit=3))
    assert {"-t 1-10", "-tc 3", "-pe smp 4", "-l h_rt=01:00:00"} <= set(lines)
    assert not [line for line in lines if line.startswith("-l ") and "h_rt" not in line]
    assert "-l rt_F=2" in directives(plan_of("gridengine", gridengine_queue="rt_F", nodes=2))
    lines = directives(plan_of("pjm", 3, pjm_queue="small", pjm_account="gg53", pjm_walltime="2:00:00", timeout_min=1))
    assert {"-g gg53", "-L rscgrp=small", "-L node=1", "-L elapse=02:00:00", "--bulk --sparam 0-2"} <= set(lines)


def test_by_a_profile() -> None:
    """Nodes without GPUs where none are asked for; Slurm may start the job anew; changes on top of a profile."""
    plan = plan_of("hpcjob", hpcjob_profile="abci3", hpcjob_account="g")
    assert plan.queue == "rt_HC"
    assert "--requeue" in directives(plan_of("hpcjob", hpcjob_profile="lab"))
    changed = {"extends": "lab", "scheduler": {"resource": "gpu"}, "env": {"A": 1}}
    plan = plan_of("hpcjob", hpcjob_profile=changed, hpcjob_env={"B": 2.5})
    assert (plan.queue, plan.env["A"], plan.env["B"]) == ("gpu", "1", "2.5")


def test_memory_that_cannot_be_asked_for() -> None:
    """A shared parameter: the same script runs on every cluster, with a warning."""
    with pytest.warns(UserWarning, match="mem_gb: pjm cannot be asked for memory"):
        plan = plan_of("pjm", mem_gb=4)
    assert plan.memory_gib is None


def test_arrays_are_as_large_as_the_site_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven functions where three are the most: three arrays, the last of which is a single job; 0: seven jobs."""
    from hpcjob.plugins.executor import _parts

    every = [submitit.helpers.DelayedSubmission(pow, 2, number) for number in range(7)]
    assert [len(part) for part in _parts(every, 3)] == [3, 3, 1]
    assert [len(part) for part in _parts(every, 0)] == [1] * 7
    assert [len(part) for part in _parts(every, None)] == [7]

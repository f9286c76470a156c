"""Values of options over those of files, and what the settings add."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from hpcjob.loading.jobs import load_job
from hpcjob.loading.prepare import prepare
from tests.hpcjob.loading.files import plan_of, refusal, settings, write


def test_options_win_over_the_file_and_set_over_options(own_place: Path) -> None:
    """Each level replaces the one below."""
    write(own_place / "a.yml", "command: [a]\nnodes: 2\nwalltime: 1:00:00\nenv: {X: a, Y: b}\n")
    plan = plan_of(
        job="a.yml", profile="lab", nodes="3", walltime="2h", env=("X=c",), settings=("nodes=4", "env.Z=1.10")
    )
    assert (plan.nodes, plan.walltime_s) == (4, 7200)
    assert {key: plan.env[key] for key in "XYZ"} == {"X": "c", "Y": "b", "Z": "1.10"}


def test_values_of_options_are_taken_as_typed(own_place: Path) -> None:
    """Names, accounts and variables are text: 007, yes, `[a` and spaces arrive unchanged."""
    plan = plan_of(profile="lab", name="007", account="yes", queue="null", env=("A=[a", "B= x=y ", "C=", "D=1e3"))
    assert (plan.name, plan.account, plan.queue) == ("007", "yes", "null")
    assert {key: plan.env[key] for key in "ABCD"} == {"A": "[a", "B": " x=y ", "C": "", "D": "1e3"}


def test_set_takes_typed_values_lists_and_places_in_lists(own_place: Path) -> None:
    """YAML decides the type; a list may be replaced or one of its items set."""
    write(own_place / "a.yml", "steps:\n- {name: a, command: [x]}\n- {name: b, train: {configs: [c.yml]}}\n")
    plan = plan_of(
        job="a.yml",
        profile="local",
        settings=("steps.0.command=[echo, '1']", "steps.1.train.set.lr=6e-5", "steps.1.env.E=010", "modules=[m/1]"),
    )
    assert plan.steps[0].argv == ("echo", "1")
    assert "lr=6.0e-05" in plan.steps[1].argv
    assert plan.steps[1].env == {"E": "010"}
    assert plan.modules == ("m/1",)


def test_set_reaches_the_profile(own_place: Path) -> None:
    """`profile.a.b` sets a value of the profile for this job."""
    plan = plan_of(profile="lab", settings=("profile.ssh.access=none", "profile.env.A=1.10"))
    assert plan.profile.ssh.access == "none"
    assert plan.env["A"] == "1.10"
    assert refusal(profile="lab", settings=("profile.ssh.acces=none",)).startswith("--set profile.ssh.acces: ")


def test_python_option(own_place: Path) -> None:
    """A folder is a virtual environment, another path an interpreter, conda:NAME a conda environment."""
    (own_place / "venv").mkdir()
    for text, field in (("venv", "venv"), ("/usr/bin/python3", "executable"), ("conda:neox", "conda")):
        python = plan_of(profile="local", python=text).job.python
        assert getattr(python, field) == text.removeprefix("conda:")


def test_the_account_is_that_of_option_job_environment_settings(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order, the settings by the profile's name or alias; without any the plan says so."""
    job = write(own_place / "a.yml", "command: [a]\n")
    with_account = write(own_place / "b.yml", "command: [a]\naccount: of-job\n")
    plan = plan_of(job=str(job), profile="abci")
    assert plan.account is None
    assert "abci3 refuses a submission without one" in plan.notes[0]
    settings(own_place, "accounts: {abci: of-alias, tsubame: of-settings}\n")
    assert plan_of(job=str(job), profile="abci3").account == "of-alias"
    assert plan_of(job=str(job), profile="tsubame").account == "of-settings"
    assert plan_of(job=str(job), profile="wisteria").account is None
    settings(own_place, "accounts: {abci: of-alias, abci3: of-name}\n")
    assert plan_of(job=str(job), profile="abci").account == "of-name"
    monkeypatch.setenv("HPCJOB_ACCOUNT", "of-environment")
    assert plan_of(job=str(job), profile="abci").account == "of-environment"
    assert plan_of(job=str(with_account), profile="abci").account == "of-job"
    assert plan_of(job=str(with_account), profile="abci", account="of-option").account == "of-option"


def test_equal_input_gives_equal_plans(own_place: Path) -> None:
    """Nothing of the moment enters a plan."""
    options: dict[str, Any] = {"profile": "abci", "nodes": "2", "env": ("A=1",)}
    assert plan_of(**options) == plan_of(**options)


def test_load_job_and_prepare_without_options(own_place: Path) -> None:
    """The library calls work without the command line."""
    path = write(own_place / "a.yml", "command: [a]\nenv: {A: 1.10}\n")
    assert load_job(path).env == {"A": "1.10"}
    plan = prepare(str(path), profile="local", interpreter="/usr/bin/python3")
    assert plan.steps[0].python.executable == "/usr/bin/python3"
    assert plan.job_source is not None
    assert plan.profile_source is not None
    assert plan.job_source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert plan.profile_source.label == "hpcjob:cluster_profiles/local.yml"

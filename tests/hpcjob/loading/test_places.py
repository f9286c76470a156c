"""Values that do not fit: told by file and line, or by the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcjob.after import Dependency
from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.profile import ClusterProfile
from hpcjob.render import render
from hpcjob.tracking.dependencies import found
from tests.hpcjob.loading.files import plan_of, refusal, settings, write


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "two"}, "--nodes: expected a whole number, got 'two'\n"),
        ({"nodes": "0"}, "--nodes: expected a whole number >= 1, got 0\n"),
        ({"nodes": "1.5"}, "--nodes: expected a whole number, got 1.5\n"),
        ({"nodes": ""}, "--nodes: expected a whole number, got nothing\n"),
        ({"gpus_per_node": "-1"}, "--gpus-per-node: expected a whole number >= 0, got -1\n"),
        ({"account": ""}, "--account: expected text that is not empty, got ''\n"),
        ({"walltime": "soon"}, "--walltime: 'soon' is not a duration\n"),
        ({"env": ("A",)}, "--env: 'A' is not K=V\n"),
        ({"env": ("=A",)}, "--env: '=A' is not K=V\n"),
        ({"env": ("A-B=1",)}, "--env A-B: env: 'A-B' is not a name of a variable\n"),
        ({"env": ("変数=1",)}, "--env 変数: env: '変数' is not a name of a variable\n"),
        ({"settings": ("nodes",)}, "--set: 'nodes' is not a.b=c\n"),
        ({"settings": ("node=2",)}, "--set node: job file has no key 'node'\ndid you mean nodes or nodelist?"),
        ({"settings": ("envs.X=2",)}, "--set envs.X: job file has no key 'envs'\ndid you mean env?"),
        (
            {"settings": ("train_iters=3",)},
            "--set train_iters: job file has no key 'train_iters'\n"
            "a key of the training configuration: --set train.set.train_iters=VALUE",
        ),
        (
            {"job": "quickstart", "settings": ("optimizer.params.lr=3",)},
            "--set optimizer.params.lr: job file has no key 'optimizer'\n"
            "a key of the training configuration: --set steps.5.train.set.optimizer.params.lr=VALUE",
        ),
        ({"settings": ("env.A-B=2",)}, "--set env.A-B: env: 'A-B' is not a name of a variable\n"),
        ({"settings": ("env.X=[1]",)}, "--set env.X: expected text, got [1]\n"),
        ({"settings": ("name=123",)}, "--set name: expected text, got 123\nput it in quotes: --set 'name=\"123\"'"),
        ({"settings": ("limits.nofile=x",)}, "--set limits.nofile: 'x' is not a whole number or unlimited\n"),
        ({"settings": ("steps=[{}]",)}, "--set steps: steps[0]: `name` is missing\n"),
        (
            {"settings": ("python=venv",)},
            "--set python: expected a mapping of keys to values, got 'venv'\n"
            "write --set 'python={venv: \"venv\"}', or conda, executable in place of venv",
        ),
        ({"settings": ("name.x=2",)}, "--set name.x: name is 'gpt-2.7B-dp', it holds no key 'x'\n"),
    ],
)
def test_options_that_are_refused(own_place: Path, options: dict[str, Any], message: str) -> None:
    """The option is named first, then the key and the value."""
    assert refusal(profile="lab", **options).startswith(message)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("walltime: 999:00:00", {}, "a.yml:2: walltime: 999:00:00 is longer than abci3 (rt_HF) allows for 1 node"),
        ("nodes: 500", {}, "a.yml:2: nodes: 500 requested, but abci3 (rt_HF) allows 128 per job\n"),
        ("nodes: 1", {"nodes": "500"}, "--nodes: 500 requested, "),
        ("gpus_per_node: 9", {}, "a.yml:2: gpus_per_node: 9 requested, but a node of abci3 (rt_HF) has 8\n"),
        ("memory: lots", {}, "a.yml:2: memory: 'lots' is not a memory size\n"),
        ("launcher: srun", {}, "a.yml:2: launcher: srun on abci3: "),
        ("array: 5-1", {}, "a.yml:2: array: '5-1' is empty\n"),
        ("array: 0-10:0", {}, "a.yml:2: array: '0-10:0': the step is 0\n"),
        ("name: 1.50", {}, 'a.yml:2: name: expected text, got 1.5\nput it in quotes: name: "1.50"'),
        ("array: {lines: none.txt}", {}, "a.yml:2: array.lines: none.txt: No such file or directory\n"),
        ("after: ''", {}, "a.yml:2: after: an empty name\n"),
        ("steps: [{name: x}]", {}, "a.yml: train, command, steps: a job has one of these, this one has command and"),
        (
            "python: venv",
            {},
            "a.yml:2: python: expected a mapping of keys to values, got 'venv'\n"
            'write python: {venv: "venv"}, or conda, executable in place of venv',
        ),
        (
            "train: b.yml",
            {},
            "a.yml:2: train: expected a mapping of keys to values, got 'b.yml'\nwrite train: {configs: [\"b.yml\"]}",
        ),
        ("env: x", {}, "a.yml:2: env: expected a mapping of keys to values, got 'x'\nwrite env: {NAME: VALUE}"),
        ("queue: 'a b'", {}, "a.yml:2: queue: "),
        ("stage_out: [../x]", {}, "a.yml:2: stage_out: '../x' leads out of the scratch folder\n"),
        ("env: {HOST_KEY: x, RANK: '1'}", {}, "a.yml:2: env.RANK: is set by the job script itself\n"),
        ("", {"settings": ("env.API_KEY=x",)}, "--set env.API_KEY: a secret would stand in the script"),
        (
            "",
            {"settings": ("profile.limits.default_walltime=soon",)},
            "profile abci3: limits.default_walltime: 'soon' is not a duration",
        ),
        (
            "",
            {"settings": ("profile.scheduler.resource=a b",)},
            "hpcjob:cluster_profiles/abci3.yml (scheduler.resource): queue: pbs cannot take 'a b'",
        ),
        ("", {"settings": ("profile.env.RANK=1",)}, "hpcjob:cluster_profiles/abci3.yml: env.RANK: is set by the job"),
    ],
)
def test_values_that_do_not_fit_are_told_at_their_place(
    own_place: Path, text: str, options: dict[str, Any], message: str
) -> None:
    """The file and line, or the option, also where a value is refused beside others or while the script is made."""
    write(own_place / "a.yml", f"command: [a]\n{text}\n")
    with pytest.raises(InputError) as error:
        render(plan_of(job="a.yml", profile="abci3", find_after=_found, **options))
    assert str(error.value).startswith(message)


def _found(job: JobFile, profile: ClusterProfile) -> tuple[list[Dependency], list[str]]:
    return found(job, profile, ask=False)


def test_an_account_is_told_where_it_stands(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the settings or in the environment, not in the job file."""
    write(own_place / "a.yml", "command: [a]\n")
    path = settings(own_place, "accounts: {abci3: 'a b'}\n")
    with pytest.raises(InputError, match=rf"^{path}: account: "):
        render(plan_of(job="a.yml", profile="abci3"))
    monkeypatch.setenv("HPCJOB_ACCOUNT", "a b")
    with pytest.raises(InputError, match=r"^HPCJOB_ACCOUNT: account: "):
        render(plan_of(job="a.yml", profile="abci3"))


@pytest.mark.parametrize(
    ("key", "hint"),
    [("partition", "queue"), ("time", "walltime"), ("tasks_per_node", "procs_per_node"), ("group", "account")],
)
def test_words_of_other_tools_are_told_in_ours(own_place: Path, key: str, hint: str) -> None:
    """What Slurm, submitit or people call a key."""
    write(own_place / "a.yml", f"command: [a]\n{key}: x\n")
    assert refusal(job="a.yml", profile="lab") == f"a.yml:2: job file has no key {key!r}\nhere it is {hint}"


def test_a_training_configuration_is_not_a_job_file(own_place: Path) -> None:
    """GPT-NeoX's spelling of its keys too; a key beside a job's own work stays an unknown key."""
    for key in ("num_layers", "pipe-parallel-size"):
        write(own_place / "125M.yml", f'{{"{key}": 1}}\n')
        assert refusal(job="125M.yml", profile="lab").endswith("names it: train: {configs: [125M.yml]}")
    write(own_place / "125M.yml", "command: [a]\nnum_layers: 1\n")
    assert "configs" not in refusal(job="125M.yml", profile="lab")


def test_mistakes_in_the_settings(own_place: Path) -> None:
    """They are told with file and line; a damaged file stops, it is not passed over."""
    path = settings(own_place, "profile: lab\naccount: {abci3: g}\n")
    assert refusal() == f"{path}:2: configuration has no key 'account'\ndid you mean accounts?"
    settings(own_place, "mail_to: [a@b]\n")
    assert refusal() == (
        f"{path}:1: mail_to: expected text, got a list\n"
        "write `profile: NAME`, `mail_to: ADDRESS`, `accounts: {PROFILE: GROUP}`"
    )
    settings(own_place, "profile: [\n")
    assert refusal().startswith(f"{path}:2: ")

"""``params:`` and ``sweep:``: typed values, required ones, and a job of its own name for each point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob.errors import InputError
from hpcjob.loading.overrides import Override
from hpcjob.loading.prepare import prepare, prepare_all
from hpcjob.plan import Plan


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plans(text: str, *settings: tuple[str, str]) -> list[Plan]:
    """Return the plans of a job file with ``--set`` on top."""
    Path("仕事.yml").write_text(text)
    overrides = [Override(path, value, f"--set {path}", is_yaml=True) for path, value in settings]
    return prepare_all("仕事.yml", profile="lab", overrides=overrides)


DECLARED = """\
name: run-{params.lr}
nodes: "{params.nodes}"
params:
  lr: {type: float, help: learning rate}
  nodes: 2
  data: {type: path, default: .}
  mode: {choices: [fast, slow], default: fast}
  flag: {type: bool, default: true}
env: {LR: "{params.lr}", FLAG: "{params.flag}"}
train: {configs: [a.yml], set: {optimizer.params.lr: "{params.lr}", tag: "x-{params.mode}", data: "{params.data}"}}
"""


def test_values_arrive_typed() -> None:
    """Numbers stay numbers in the configuration; elsewhere the text is as it was written."""
    (plan,) = plans(DECLARED, ("params.lr", "6e-5"), ("params.mode", "slow"))
    assert (plan.name, plan.nodes) == ("run-6e-5", 2)
    assert plan.env == {**plan.env, "LR": "6e-5", "FLAG": "true"}
    assert plan.job.train is not None
    assert plan.job.train.set == {"optimizer.params.lr": 6e-5, "tag": "x-slow", "data": "."}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "params.lr: no value given (learning rate)"),
        ([("params.lr", "<FIX_ME>")], "is a placeholder"),
        ([("params.lr", "CHANGE_ME")], "is a placeholder"),
        ([("params.lr", "'???'")], "is a placeholder"),
        ([("params.lr", "fast")], "--set params.lr: 'fast' is not of type float"),
        ([("params.lr", "true")], "'true' is not of type float"),
        ([("params.lr", "1"), ("params.mode", "medium")], "medium is not one of its choices"),
        ([("params.lr", "1"), ("params.data", "無い")], "--set params.data: 無い does not exist here"),
        ([("params.lr", "1"), ("params.flag", "2")], "'2' is not of type bool"),
        ([("params.lr", "1"), ("env.X", "'{params.lrr}'")], "there is no parameter 'lrr'"),
        ([("params.lr", "[1]")], "got a list"),
    ],
)
def test_refused(settings: list[tuple[str, str]], words: str) -> None:
    """A missing value, a placeholder, another type: in one line, with the option to give."""
    with pytest.raises(InputError) as caught:
        plans(DECLARED, *settings)
    assert words in caught.value.message
    assert caught.value.hint


def test_unused_and_undeclared() -> None:
    """A parameter that nothing uses is noted; one that is not declared is refused."""
    (plan,) = plans("params: {a: 1}\ncommand: [x]\n")
    assert [note for note in plan.notes if "params.a" in note]
    with pytest.raises(InputError, match="there is no parameter 'a'"):
        plans("command: [x, '{params.a}']\n")


def test_grid_and_list() -> None:
    """Each combination, or each mapping of a list, is a job whose name says which."""
    grid = "params: {lr: {type: float}}\nsweep: {lr: [1e-4, 3e-4], train.set.seed: [1, 2]}\n"
    grid += 'train: {configs: [a.yml], set: {lr: "{params.lr}"}}\n'
    found = plans(grid)
    assert [plan.name for plan in found] == [
        "仕事-lr=1e-4-seed=1", "仕事-lr=1e-4-seed=2", "仕事-lr=3e-4-seed=1", "仕事-lr=3e-4-seed=2",
    ]  # fmt: skip
    assert [plan.job.train and plan.job.train.set for plan in found] == [
        {"lr": lr, "seed": seed} for lr in (1e-4, 3e-4) for seed in (1, 2)
    ]
    found = plans("name: n\nsweep: [{nodes: 1, env.A: x/y}, {nodes: 2, env.A: ''}]\ncommand: [x]\n")
    assert [(plan.name, plan.nodes, plan.env["A"]) for plan in found] == [
        ("n-nodes=1-A=x_y", 1, "x/y"),
        ("n-nodes=2-A=", 2, ""),
    ]
    found = plans(yaml.safe_dump({"command": ["x"], "sweep": {"env.A": ["a" * 200, "b" * 200]}}))
    assert [plan.name for plan in found] == ["仕事-0001", "仕事-0002"]


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({}, "no values"),
        ({"env.A": []}, "no values"),
        ({"lr": [1]}, "'lr' is neither"),
        ({"name": ["a"]}, "'name' is neither"),
        ({"env.A": list(range(1001))}, "more than 1000"),
        ({"env.A": list(range(40)), "env.B": list(range(40))}, "more than 1000"),
        ("0-9", "sweep"),
        ([1], "sweep"),
        ({"env.A": [[1]]}, "sweep"),
    ],
)
def test_sweeps_that_are_none(sweep: Any, words: str) -> None:
    """Nothing to sweep, something that the job does not have, too much of it."""
    with pytest.raises(InputError, match=words):
        plans(yaml.safe_dump({"command": ["x"], "sweep": sweep}))


def test_one_is_asked_for() -> None:
    """Who can take one job only is told that these are several."""
    Path("s.yml").write_text("command: [x]\nsweep: {env.A: [1, 2]}\n")
    with pytest.raises(InputError, match="2 jobs"):
        prepare("s.yml", profile="lab")

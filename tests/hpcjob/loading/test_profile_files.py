"""Profiles by name, alias and path, and those that they extend."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hpcjob.cli import main
from hpcjob.errors import InputError
from hpcjob.loading.overrides import Override
from hpcjob.loading.profiles import load_profile, profile_names, read_profile
from tests.hpcjob.loading.files import PROFILE, own_profile, plan_of, refusal, settings, write


def test_the_profile_is_that_of_option_job_environment_settings(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; without any, the names are listed."""
    job = write(own_place / "a.yml", "command: [a]\n")
    with_profile = write(own_place / "b.yml", "command: [a]\nprofile: miyabi\n")
    message = refusal(job=str(job))
    assert message.startswith("no profile given\n")
    assert "abci3, lab, local" in message
    settings(own_place, "profile: lab\n")
    assert plan_of(job=str(job)).profile.name == "lab"
    monkeypatch.setenv("HPCJOB_PROFILE", "wisteria")
    assert plan_of(job=str(job)).profile.name == "wisteria"
    assert plan_of(job=str(with_profile)).profile.name == "miyabi"
    assert plan_of(job=str(with_profile), profile="abci").profile.name == "abci3"


def test_aliases(own_place: Path) -> None:
    """`abci` means abci3 as long as no profile has that name itself."""
    assert load_profile("abci")[0].name == "abci3"
    mine = own_profile(own_place, "abci")
    notes: list[str] = []
    profile, path = load_profile("abci", notes=notes)
    assert (profile.node.gpus, path) == (4, mine)
    assert notes == [f"profile abci: {mine} is used, it hides the shipped hpcjob:cluster_profiles/abci3.yml"]


def test_a_profile_that_hides_a_shipped_one_is_announced(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the plan's notes, whichever of the three folders it is in; the current folder wins."""
    elsewhere = write(own_place.parent / "shared/cluster_profiles/lab.yml", PROFILE.format(name="lab"))
    monkeypatch.setenv("HPCJOB_PATH", f"/no/such/folder:{own_place.parent / 'shared'}")
    assert str(elsewhere) in plan_of(profile="lab").notes[0]
    mine = own_profile(own_place, "lab")
    assert str(mine) in plan_of(profile="lab").notes[0]
    write(own_place / "cluster_profiles/lab.yml", PROFILE.format(name="lab"))
    assert plan_of(profile="lab").notes[0] == (
        "profile lab: cluster_profiles/lab.yml is used, it hides the shipped hpcjob:cluster_profiles/lab.yml"
    )
    assert "lab" in profile_names()


def test_a_profile_by_path(own_place: Path) -> None:
    """A path is no name: nothing is searched, and nothing announced."""
    path = write(own_place / "my lab.yml", PROFILE.format(name="mine"))
    notes: list[str] = []
    assert load_profile("./my lab.yml", notes=notes)[0].name == "mine"
    assert notes == []
    assert load_profile(str(path))[1] == path
    with pytest.raises(InputError, match=r"no\.yml: no such profile"):
        load_profile("no.yml")


def test_profiles_that_are_not_there(own_place: Path) -> None:
    """Near names and aliases are offered, and all names listed."""
    assert refusal(profile="abc") == (
        "no profile 'abc'\ndid you mean abci or abci2 or abci3? profiles: "
        "abci2, abci3, lab, local, miyabi, tsubame, wisteria (`hpcjob profile list`)"
    )


def test_extending_a_profile(own_place: Path) -> None:
    """Values are merged, lists replaced; name, aliases and status are the profile's own; the digest covers both."""
    mine = own_profile(
        own_place, "mine", "extends: abci\ntitle: mine\nmodules: {load: [hpcx/2.20]}\nnode: {gpus: 4}\nenv: {A: 1.10}\n"
    )
    profile, source = read_profile("mine")
    base, base_source = read_profile("abci3")
    assert (profile.name, profile.aliases, profile.status) == ("mine", [], "documented")
    assert profile.modules.load == ["hpcx/2.20"]
    assert profile.modules.init == base.modules.init
    assert (profile.node.gpus, profile.node.cores) == (4, base.node.cores)
    assert profile.env == {**base.env, "A": "1.10"}
    assert source.sha256 == hashlib.sha256(mine.read_bytes() + base_source.path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("node", "options", "gpu"),
    [
        ("{gpus: 4}", [], ("A100 40GB", 40, 312)),
        ("{gpus: 4, gpu: A100 40GB}", [], ("A100 40GB", 40, 312)),
        ("{gpus: 4, gpu: H100}", [], ("H100", None, None)),
        ("{gpus: 4, gpu: H100, peak_tflops: 989}", [], ("H100", None, 989)),
        ("{gpus: 4}", ["node.gpu=H100"], ("H100", None, None)),
        ("{gpus: 4}", ["node.peak_tflops=989", "node.gpu=H100"], ("H100", None, 989)),
        ("{gpus: 4}", ["node={gpu: H100, peak_tflops: 989}"], ("H100", None, 989)),
        ("{gpus: 0}", [], (None, None, None)),
    ],
)
def test_another_gpu_does_not_inherit_the_peak_of_the_first(
    own_place: Path, node: str, options: list[str], gpu: tuple[object, ...]
) -> None:
    """With the A100's 312 TFLOP/s of the shipped `lab` each MFU of an H100 would be three times too high."""
    own_profile(own_place, "mine", f"extends: lab\ntitle: mine\nnode: {node}\n")
    overrides = [Override(*option.split("=", 1), "--set", is_yaml=True) for option in options]
    found = read_profile("mine", overrides)[0].node
    assert (found.gpu, found.gpu_memory_gib, found.peak_tflops) == gpu


def test_another_gpu_of_a_queue_does_not_inherit_the_peak_either(own_place: Path) -> None:
    """A queue's node is one like the profile's."""
    own_profile(own_place, "mine", "extends: abci2\ntitle: mine\nqueues: {rt_F: {node: {gpu: H100}}}\n")
    node = load_profile("mine")[0].queues["rt_F"].node
    assert node is not None
    assert (node.gpus, node.gpu, node.gpu_memory_gib, node.peak_tflops) == (4, "H100", None, None)


def test_extending_the_shipped_profile_of_ones_own_name(own_place: Path) -> None:
    """`extends: lab` in the user's lab.yml means the shipped one."""
    own_profile(own_place, "lab", "extends: lab\nnode: {gpus: 2}\n")
    profile, _ = load_profile("lab")
    assert (profile.name, profile.node.gpus, profile.scheduler.type) == ("lab", 2, "slurm")


def test_a_path_in_extends_is_relative_to_the_file(own_place: Path) -> None:
    """So that a folder of profiles can be moved."""
    write(own_place / "base.yml", PROFILE.format(name="base"))
    write(own_place / "sub/mine.yml", "extends: ../base.yml\nname: mine\n")
    assert load_profile("sub/mine.yml")[0].node.cores == 64


def test_extends_that_go_round_or_nowhere(own_place: Path) -> None:
    """The ring is shown; a missing name is told at its line."""
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "./self.yml")):
        own_profile(own_place, name, f"title: x\nextends: {parent}\n")
    folder = own_place.parent / "config/hpcjob/cluster_profiles"
    message = refusal(profile="a")
    assert message.startswith(f"{folder / 'c.yml'}:2: profiles extend each other in a cycle: ")
    assert " -> ".join(str(folder / f"{name}.yml") for name in "abca") in message
    assert "in a cycle" in refusal(profile="self")
    own_profile(own_place, "alone", "title: x\nextends: alone\n")
    assert refusal(profile="alone") == (
        f"{folder / 'alone.yml'}:2: extends: 'alone' is this profile, and there is no other\nname another one"
    )
    own_profile(own_place, "d", "title: x\nextends: tsubam\n")
    assert refusal(profile="d").startswith(f"{folder / 'd.yml'}:2: extends: no profile 'tsubam'\ndid you mean tsubame")
    own_profile(own_place, "e", "title: x\nextends: [abci]\n")
    assert refusal(profile="e").startswith(f"{folder / 'e.yml'}:2: extends: ['abci'] is not a name\n")


def test_mistakes_in_a_profile_are_told_at_their_line(own_place: Path) -> None:
    """As in a job file, also where the value comes from the profile that is extended."""
    path = own_profile(own_place, "bad", PROFILE.format(name="bad") + "ssh:\n  acces: free\n")
    assert refusal(profile="bad") == f"{path}:7: profile has no key 'ssh.acces'\ndid you mean access?"
    own_profile(own_place, "worse", "extends: bad\n")
    assert refusal(profile="worse").startswith(f"{path}:7: ")
    own_profile(own_place, "base", PROFILE.format(name="base") + "env:\n  A: x\nmodules:\n  load:\n  - a\n")
    path = own_profile(own_place, "over", "title: x\nextends: base\nmodules:\n  load: [[b]]\n")
    assert refusal(profile="over").startswith(f"{path}:4: modules.load[0]: expected text")
    for key, words in (
        ("peak_tflops: -1", "node.peak_tflops: expected a number > 0.0, got -1"),
        ("memory_gib: .inf", "node.memory_gib: expected a number <= 1000000000.0, got inf"),
        ("scratch: a b", "node.scratch: expected a name of letters, digits and _, no digit first, got 'a b'"),
    ):
        path = own_profile(own_place, "odd", f"extends: base\nnode: {{{key}}}\n")
        assert refusal(profile="odd").startswith(f"{path}:2: {words}")
    path = own_profile(own_place, "odd", "extends: base\nversions: {cuda: twelve}\n")
    assert refusal(profile="odd").startswith(f"{path}:2: versions.cuda: expected a version such as 12.4, got 'twelve'")
    path = own_profile(own_place, "odd", "extends: base\nlimits: {node_hours: .inf}\n")
    assert refusal(profile="odd").startswith(f"{path}:2: limits.node_hours: expected a number")
    own_profile(own_place, "bare", "name: bare\n")
    assert "`title` is missing" in refusal(profile="bare")


def test_the_name_of_a_profile_is_its_files(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of another profile that still has its name: jobs, accounts and the index know it as it is asked for."""
    path = own_profile(own_place, "ours", PROFILE.format(name="theirs"))
    told = f"profile ours: {path}:2 says `name: theirs`; the file's name counts"
    plan = plan_of(profile="ours")
    assert plan.profile.name == "ours"
    assert told in plan.notes
    assert refusal(profile="theirs") == (
        f"no profile 'theirs'\n{path} says `name: theirs`, but the file's name counts: -p ours, or call the "
        "file theirs.yml"
    )
    assert main(["profile", "list", "--json"]) == 0
    output = capsys.readouterr()
    assert f"hpcjob: note: {told}\n" in output.err
    assert '"name": "ours"' in output.out
    assert main(["profile", "show", "ours", "--resolved"]) == 0
    output = capsys.readouterr()
    assert output.err == f"hpcjob: note: {told}\n"
    assert "\nname: ours\n" in output.out
    assert plan_of(profile=str(path)).profile.name == "theirs"  # as the profile.yml in a job's folder
    own_profile(own_place, "odd", "name: [a]\ntitle: t\nscheduler: {type: slurm}\n")
    assert "name: expected" in refusal(profile="odd")

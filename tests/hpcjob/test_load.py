"""Finding and merging job files, profiles, options and the user's settings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from hpcjob.after import Dependency
from hpcjob.cli.options import plans_from_options
from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.loading.jobs import find_job, job_names, load_job
from hpcjob.loading.prepare import prepare
from hpcjob.loading.profiles import load_profile, profile_names, read_profile
from hpcjob.plan import Plan
from hpcjob.profile import ClusterProfile
from hpcjob.render import render
from hpcjob.tracking.dependencies import found

_PROFILE = "schema: 1\nname: {name}\ntitle: a cluster\nscheduler: {{type: slurm}}\nnode: {{gpus: 4, cores: 64}}\n"


def write(path: Path, text: str) -> Path:
    """Write a file and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def own_profile(place: Path, name: str, text: str | None = None) -> Path:
    """Write a profile into the user's folder."""
    return write(place.parent / "config/hpcjob/cluster_profiles" / f"{name}.yml", text or _PROFILE.format(name=name))


def settings(place: Path, text: str) -> Path:
    """Write the user's settings."""
    return write(place.parent / "config/hpcjob/config.yml", text)


def plan_of(**options: Any) -> Plan:
    """Return the plan of the given options."""
    return plans_from_options(**options)[0]


def refusal(**options: Any) -> str:
    """Return message and hint with which the options are refused."""
    with pytest.raises(InputError) as error:
        plans_from_options(**options)
    assert error.value.exit_code == 2
    return str(error.value)


# --- which job ------------------------------------------------------------------------------------------------------


def test_without_a_job_file_the_2_7b_run_is_taken(own_place: Path) -> None:
    """On a cluster it is the data-parallel 2.7B run for any number of nodes, and the plan says so."""
    plan = plan_of(profile="abci3", nodes="2", account="gxx")
    assert (plan.nodes, plan.world_size) == (2, 16)
    assert plan.notes == ("no job file given: hpcjob:jobs/2.7B/dp.yml",)
    assert plan.job_source is not None
    assert plan.job_source.label == "hpcjob:jobs/2.7B/dp.yml"


def test_without_a_job_file_this_machine_runs_the_quickstart(own_place: Path) -> None:
    """On `local`, and on a profile that extends it."""
    assert plan_of(profile="local").name == "quickstart"
    own_profile(own_place, "workstation", "extends: local\ntitle: mine\nnode: {gpus: 1}\n")
    plan = plan_of(profile="workstation", settings=("procs_per_node=1",))
    assert plan.name == "quickstart"
    assert plan.profile.node.gpus == 1


@pytest.mark.parametrize("name", ["jobs/2.7B/dp.yml", "2.7B/dp.yml", "2.7B/dp", "jobs/2.7B/dp"])
def test_shipped_jobs_are_found_from_anywhere(own_place: Path, name: str) -> None:
    """With and without the folder and the suffix."""
    assert find_job(name).parts[-2:] == ("2.7B", "dp.yml")


def test_a_job_file_here_comes_before_a_shipped_one(own_place: Path) -> None:
    """`jobs/quickstart.yml` of the current folder is taken; a path is taken as it is."""
    write(own_place / "jobs/quickstart.yml", "name: mine\ncommand: [a]\n")
    assert plan_of(job="jobs/quickstart.yml", profile="local").name == "mine"
    assert plan_of(job="quickstart", profile="local").name == "mine"
    assert plan_of(job=str(own_place / "jobs/quickstart.yml"), profile="local").name == "mine"


def test_japanese_names_and_spaces_in_paths(own_place: Path) -> None:
    """A job file 実験 その1.yml is read, and gives the job its name."""
    write(own_place / "実験/実験 その1.yml", "command: [echo, こんにちは]\nenv: {鍵: x}\n")
    assert refusal(job="実験/実験 その1.yml", profile="local").startswith(
        "実験/実験 その1.yml:2: env: '鍵' is no name of a variable\n"
    )
    write(own_place / "実験/実験 その1.yml", "command: [echo, こんにちは]\n")
    plan = plan_of(job="実験/実験 その1.yml", profile="local")
    assert plan.name == "実験 その1"
    assert plan.steps[0].argv == ("echo", "こんにちは")


def test_job_files_that_are_not_there(own_place: Path) -> None:
    """Near names are offered; a folder is told to be one."""
    assert refusal(job="quikstart", profile="local") == ("quikstart: no such job file\ndid you mean quickstart.yml?")
    (own_place / "runs").mkdir()
    assert refusal(job="runs", profile="local").startswith("runs: a folder, not a job file\n")
    assert refusal(job="/no/such/file.yml", profile="local").startswith("/no/such/file.yml: no such job file\n")
    assert "2.7B/dp.yml" in job_names()
    assert refusal(job="zzzz", profile="local").endswith(
        f"job files: {', '.join(job_names())}, or the path of one of your own"
    )
    (own_place / "my runs").mkdir()
    (own_place / "my runs/実験.yml").touch()
    assert refusal(job="my runs/実験2.yml", profile="local").endswith("\ndid you mean my runs/実験.yml?")


def test_a_folder_that_is_closed(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job file, and the settings, below a folder that may not be entered are told as such."""

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    def unread(path: Path, limit: int | None = None) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", closed)
        patch.setattr("hpcjob.documents.reading.read_regular", unread)
        assert refusal(job="sec/a.yml", profile="lab") == (
            "sec/a.yml: Permission denied\ncheck that the job file can be read"
        )
    path = settings(own_place, "profile: lab\n")
    monkeypatch.setattr(Path, "exists", closed)
    monkeypatch.setattr("hpcjob.documents.reading.read_regular", unread)
    assert refusal(profile="lab") == f"{path}: Permission denied\ncheck that the configuration can be read"


# --- which profile --------------------------------------------------------------------------------------------------


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
    elsewhere = write(own_place.parent / "shared/cluster_profiles/lab.yml", _PROFILE.format(name="lab"))
    monkeypatch.setenv("HPCJOB_PATH", f"/no/such/folder:{own_place.parent / 'shared'}")
    assert str(elsewhere) in plan_of(profile="lab").notes[0]
    mine = own_profile(own_place, "lab")
    assert str(mine) in plan_of(profile="lab").notes[0]
    write(own_place / "cluster_profiles/lab.yml", _PROFILE.format(name="lab"))
    assert plan_of(profile="lab").notes[0] == (
        "profile lab: cluster_profiles/lab.yml is used, it hides the shipped hpcjob:cluster_profiles/lab.yml"
    )
    assert "lab" in profile_names()


def test_a_profile_by_path(own_place: Path) -> None:
    """A path is no name: nothing is searched, and nothing announced."""
    path = write(own_place / "my lab.yml", _PROFILE.format(name="mine"))
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


def test_extending_the_shipped_profile_of_ones_own_name(own_place: Path) -> None:
    """`extends: lab` in the user's lab.yml means the shipped one."""
    own_profile(own_place, "lab", "extends: lab\nnode: {gpus: 2}\n")
    profile, _ = load_profile("lab")
    assert (profile.name, profile.node.gpus, profile.scheduler.type) == ("lab", 2, "slurm")


def test_a_path_in_extends_is_relative_to_the_file(own_place: Path) -> None:
    """So that a folder of profiles can be moved."""
    write(own_place / "base.yml", _PROFILE.format(name="base"))
    write(own_place / "sub/mine.yml", "extends: ../base.yml\nname: mine\n")
    assert load_profile("sub/mine.yml")[0].node.cores == 64


def test_extends_that_go_round_or_nowhere(own_place: Path) -> None:
    """The ring is shown; a missing name is told at its line."""
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "./self.yml")):
        own_profile(own_place, name, f"title: x\nextends: {parent}\n")
    folder = own_place.parent / "config/hpcjob/cluster_profiles"
    message = refusal(profile="a")
    assert message.startswith(f"{folder / 'c.yml'}:2: profiles extend one another in a ring: ")
    assert " -> ".join(str(folder / f"{name}.yml") for name in "abca") in message
    assert "in a ring" in refusal(profile="self")
    own_profile(own_place, "d", "title: x\nextends: tsubam\n")
    assert refusal(profile="d").startswith(f"{folder / 'd.yml'}:2: extends: no profile 'tsubam'\ndid you mean tsubame")
    own_profile(own_place, "e", "title: x\nextends: [abci]\n")
    assert refusal(profile="e").startswith(f"{folder / 'e.yml'}:2: extends: ['abci'] is no name\n")


def test_mistakes_in_a_profile_are_told_at_their_line(own_place: Path) -> None:
    """As in a job file, also where the value comes from the profile that is extended."""
    path = own_profile(own_place, "bad", _PROFILE.format(name="bad") + "ssh:\n  acces: free\n")
    assert refusal(profile="bad") == f"{path}:7: profile has no key 'ssh.acces'\ndid you mean access?"
    own_profile(own_place, "worse", "extends: bad\n")
    assert refusal(profile="worse").startswith(f"{path}:7: ")
    own_profile(own_place, "bare", "name: bare\n")
    assert "object missing required field `title`" in refusal(profile="bare")


# --- values ---------------------------------------------------------------------------------------------------------


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
        ({"env": ("A-B=1",)}, "--env A-B: env: 'A-B' is no name of a variable\n"),
        ({"env": ("変数=1",)}, "--env 変数: env: '変数' is no name of a variable\n"),
        ({"settings": ("nodes",)}, "--set: 'nodes' is not a.b=c\n"),
        ({"settings": ("node=2",)}, "--set node: job file has no key 'node'\ndid you mean nodes or nodelist?"),
        ({"settings": ("envs.X=2",)}, "--set envs.X: job file has no key 'envs'\ndid you mean env?"),
        ({"settings": ("env.A-B=2",)}, "--set env.A-B: env: 'A-B' is no name of a variable\n"),
        ({"settings": ("env.X=[1]",)}, "--set env.X: expected text, got [1]\n"),
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
        ("nodes: 500", {}, "a.yml:2: nodes: 500 asked, abci3 (rt_HF) allows 128 per job\n"),
        ("nodes: 1", {"nodes": "500"}, "--nodes: 500 asked, "),
        ("gpus_per_node: 9", {}, "a.yml:2: gpus_per_node: 9 asked, a node of abci3 (rt_HF) has 8\n"),
        ("memory: lots", {}, "a.yml:2: memory: 'lots' is not a memory size\n"),
        ("launcher: srun", {}, "a.yml:2: launcher: srun on abci3: "),
        ("array: 5-1", {}, "a.yml:2: array: '5-1' is empty\n"),
        ("array: {lines: none.txt}", {}, "a.yml:2: array.lines: none.txt: No such file or directory\n"),
        ("after: ''", {}, "a.yml:2: after: an empty name\n"),
        ("steps: [{name: x}]", {}, "a.yml: train, command, steps: a job has one of these, this one has command and"),
        ("queue: 'a b'", {}, "a.yml:2: queue: "),
        ("stage_out: [../x]", {}, "a.yml:2: stage_out: '../x' leads out of the scratch folder\n"),
        ("env: {HOST_KEY: x, RANK: '1'}", {}, "a.yml:2: env.RANK: is set by the job script itself\n"),
        ("", {"settings": ("env.API_KEY=x",)}, "--set env.API_KEY: a secret would stand in the script"),
        (
            "",
            {"settings": ("profile.limits.default_walltime=soon",)},
            "profile abci3: limits.default_walltime: 'soon' is not a duration",
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


def test_mistakes_in_the_settings(own_place: Path) -> None:
    """They are told with file and line; a damaged file stops, it is not passed over."""
    path = settings(own_place, "profile: lab\naccount: {abci3: g}\n")
    assert refusal() == f"{path}:2: configuration has no key 'account'\ndid you mean accounts?"
    settings(own_place, "profile: [\n")
    assert refusal().startswith(f"{path}:2: ")


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

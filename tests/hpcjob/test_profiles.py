"""The shipped profiles and jobs, and the commands that show profiles and schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcjob import resources
from hpcjob.cli import main
from hpcjob.loading.jobs import find_job, job_names, load_job
from hpcjob.loading.prepare import prepare
from hpcjob.loading.profiles import load_profile, profile_names
from hpcjob.profile import ClusterProfile
from hpcjob.schema import json_schema

_SHIPPED = ["abci2", "abci3", "lab", "local", "miyabi", "tsubame", "wisteria"]
_SITES = ["abci2", "abci3", "miyabi", "tsubame", "wisteria"]
_JOBS = ["2.7B/1node-dp4-tp1-pp2.yml", "2.7B/1node-dp8-tp1-pp1.yml", "2.7B/2node-dp16-tp1-pp1.yml", "2.7B/dp.yml"]


@pytest.fixture(autouse=True)
def _own_place(own_place: Path) -> None:
    pass


def text_of(name: str) -> str:
    """Return the text of a shipped profile."""
    return (resources.shipped("cluster_profiles") / f"{name}.yml").read_text()


def test_the_shipped_profiles() -> None:
    """Exactly these are shipped, each under its file's name, and each loads."""
    assert profile_names() == _SHIPPED
    for name in _SHIPPED:
        assert load_profile(name)[0].name == name


def test_scheduler_and_account_of_each_site() -> None:
    """How each site counts nodes and charges, from its own documentation (see the profiles)."""
    expected = {
        # name: scheduler, account option, required, queue
        "abci3": ("pbs", "-P", True, "rt_HF"),
        "abci2": ("gridengine", "-g-cli", True, "rt_AF"),
        "tsubame": ("gridengine", "-g-cli", False, "node_f"),
        "wisteria": ("pjm", "-g", True, "regular-a"),
        "miyabi": ("pbs", "group_list", True, "regular-g"),
        "lab": ("slurm", "--account", False, None),
        "local": ("local", "none", False, None),
    }
    for name, (kind, account, required, queue) in expected.items():
        scheduler = load_profile(name)[0].scheduler
        assert (scheduler.type, scheduler.account, scheduler.account_required, scheduler.resource) == (
            kind,
            account,
            required,
            queue,
        )


def test_the_module_set_of_abci2() -> None:
    """The modules of 2023 on which the published 2.7B runs were made, and their versions as declared."""
    profile = load_profile("abci2")[0]
    assert profile.modules.load == ["cuda/11.8/11.8.0", "cudnn/8.6/8.6.0", "nccl/2.16/2.16.2-1", "hpcx/2.12"]
    assert (profile.versions.cuda, profile.versions.nccl, profile.versions.nccl_from) == ("11.8", "2.16.2", "module")
    assert profile.status == "closed"


def test_ssh_of_each_site() -> None:
    """Free, none or behind a switch: decides whether pdsh can work."""
    switches = {name: load_profile(name)[0].ssh for name in _SHIPPED}
    assert (switches["abci3"].access, switches["abci3"].directive) == ("switch", "-v USE_SSH=1")
    assert (switches["abci2"].access, switches["abci2"].directive) == ("switch", "-l USE_SSH=1")
    assert switches["wisteria"].access == "none"
    assert switches["lab"].access == "free"
    assert all(ssh.directive for ssh in switches.values() if ssh.access == "switch")


def test_declared_versions_are_those_of_the_modules() -> None:
    """A profile that loads a cuda or nccl module declares that version of it."""
    for name in _SITES:
        profile = load_profile(name)[0]
        for module in profile.modules.load:
            if module.startswith("cuda/"):
                assert profile.versions.cuda is not None
                assert re.search(rf"/{re.escape(profile.versions.cuda)}(\.|$|/)", module), name
            if module.startswith("nccl/") and profile.versions.nccl_from == "module":
                assert profile.versions.nccl is not None
                assert f"/{profile.versions.nccl}" in module, name


@pytest.mark.parametrize("name", _SITES)
def test_profiles_of_sites_are_complete(name: str) -> None:
    """What a script, a planner and a refusal need of a real system is given."""
    profile = load_profile(name)[0]
    assert profile.node.gpus >= 1
    for field in ("gpu", "gpu_memory_gib", "peak_tflops", "cores", "memory_gib", "hcas", "link_gbps"):
        assert getattr(profile.node, field), field
    assert profile.modules.init
    assert profile.modules.load
    assert "/tmp" in profile.paths.not_shared
    assert profile.scheduler.resource in profile.queues
    for queue in profile.queues.values():
        nodes = [size.nodes for size in queue.sizes]
        assert nodes == sorted(nodes)
        assert nodes


@pytest.mark.parametrize("name", _SITES)
def test_each_value_of_a_site_has_its_source(name: str) -> None:
    """Each scalar or list is on a line with a comment, or in a block whose opening line has one, or says it is ours."""
    bare = []
    covered: list[tuple[int, bool]] = []
    comment_above = False
    for line in text_of(name).splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            comment_above = bool(stripped)
            continue
        indent = len(line) - len(line.lstrip())
        covered = [(depth, has) for depth, has in covered if depth < indent]
        has_comment = " # " in line or comment_above or any(has for _, has in covered)
        if stripped.split(" #")[0].rstrip().endswith(":"):
            covered.append((indent, has_comment))
        elif not has_comment:
            bare.append(stripped)
        comment_above = False
    ours = r"(schema|name|aliases|title|status|type|mpi|arch|purge|access|not_shared|scratch|link_gbps|init): ?"
    assert [line for line in bare if not re.match(ours, line)] == []


@pytest.mark.parametrize("name", [*_JOBS, "quickstart.yml"])
def test_shipped_jobs_load(name: str) -> None:
    """Each job file is read, and its name may be a job's name everywhere: Grid Engine and PBS want a letter first."""
    assert name in job_names()
    job = load_job(find_job(name))
    assert job.name is not None
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", job.name)


@pytest.mark.parametrize(
    ("job", "nodes", "world_size", "configs"),
    [
        ("2.7B/1node-dp8-tp1-pp1.yml", 1, 8, ["2-7B.yml", "runs/2.7B-1node-dp8.yml", "local_setup.yml"]),
        ("2.7B/2node-dp16-tp1-pp1.yml", 2, 16, ["2-7B.yml", "runs/2.7B-2node-dp16.yml", "local_setup.yml"]),
        ("2.7B/1node-dp4-tp1-pp2.yml", 1, 8, ["2-7B.yml", "runs/2.7B-1node-dp4-pp2.yml", "local_setup.yml"]),
    ],
)
def test_the_three_2_7b_runs(job: str, nodes: int, world_size: int, configs: list[str]) -> None:
    """One node of 8, two nodes of 8, and four copies of two pipeline stages; their configurations are shipped."""
    plan = prepare(job, profile="abci2")
    assert (plan.nodes, plan.world_size) == (nodes, world_size)
    assert plan.job.train is not None
    assert plan.job.train.configs == configs
    shipped = Path(__file__).parents[2] / "neoxlite/configs"
    assert all((shipped / config).is_file() for config in configs)


# --- commands -------------------------------------------------------------------------------------------------------


def test_profile_list(capsys: pytest.CaptureFixture[str]) -> None:
    """A line a profile: name, scheduler, GPUs, nodes of a job, status; and last the title, which may be long."""
    assert main(["profile", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "SCHEDULER", "GPUS", "NODES", "STATUS", "SYSTEM"]
    assert [line.split()[0] for line in lines[1:]] == _SHIPPED
    assert re.fullmatch(r"abci3 +pbs +8 x H200 SXM +128 +documented +ABCI 3\.0, AIST", lines[2])


def test_profile_list_as_json_and_with_a_broken_profile(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken profile of the user's is told on stderr and does not hide the others."""
    (own_place / "cluster_profiles").mkdir()
    (own_place / "cluster_profiles/broken.yml").write_text("nam: x")
    assert main(["profile", "list", "--json"]) == 0
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["name"] for row in rows] == _SHIPPED
    assert rows[1]["aliases"] == "abci"
    assert "broken.yml:1: profile has no key 'nam'" in captured.err


def test_profile_show_and_path(own_place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file with its comments, after it those it extends; its path; the folders."""
    (own_place / "cluster_profiles").mkdir()
    (own_place / "cluster_profiles/東.yml").write_text("extends: abci # 東の計算機\n")
    assert main(["profile", "show", "東"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("東の計算機") < shown.index("H200 SXM") < shown.index("USE_SSH=1")
    assert main(["profile", "show", "東", "--resolved"]) == 0
    resolved = yaml.safe_load(capsys.readouterr().out)
    assert (resolved["name"], resolved["node"]["gpu"], resolved["aliases"]) == ("東", "H200 SXM", [])
    assert main(["profile", "path", "abci"]) == 0
    assert main(["profile", "path"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(resources.shipped("cluster_profiles") / "abci3.yml")
    assert lines[1:] == ["cluster_profiles", str(resources.shipped("cluster_profiles"))]
    assert main(["profile", "show", "abci4"]) == 2
    assert "did you mean abci" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["job", "profile"])
def test_schema_is_printed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is JSON, names its draft, and describes every key."""
    assert main(["schema", kind]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for name, definition in schema["$defs"].items():
        for key, value in definition["properties"].items():
            assert "description" in value, (name, key)


def problems(value: Any, schema: dict[str, Any], definitions: dict[str, Any], where: str = "$") -> list[str]:
    """Return what is wrong with ``value``: the part of JSON Schema that these schemas use."""
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in schema.items() if k != "$ref"}}
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    found: list[str] = []
    if "anyOf" in schema:
        tried = [problems(value, option, definitions, where) for option in schema["anyOf"]]
        found += [] if any(not each for each in tried) else [problem for each in tried for problem in each]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is not in {schema['enum']}")
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = [number if n in ("number", "integer") else isinstance(value, types[n]) for n in names]
        if not any(fits):
            return [*found, f"{where}: {value!r} is no {names}"]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{where}: {key} is missing" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            rest = schema.get("additionalProperties", True)
            if key in known:
                found += problems(item, known[key], definitions, f"{where}.{key}")
            elif isinstance(rest, dict):
                found += problems(item, rest, definitions, f"{where}.{key}")
            elif not rest:
                found.append(f"{where}: {key} is not known")
            if "pattern" in schema.get("propertyNames", {}) and not re.search(schema["propertyNames"]["pattern"], key):
                found.append(f"{where}: {key} does not fit")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += problems(item, schema["items"], definitions, f"{where}[{index}]")
    if isinstance(value, (int, float)) and value < schema.get("minimum", value):
        found.append(f"{where}: {value} < {schema['minimum']}")
    return found


def test_the_schema_fits_the_shipped_files_and_no_mistakes() -> None:
    """All shipped files pass, a file that extends another too; unknown keys, wrong types and missing keys do not."""
    from hpcjob.documents.reading import read

    for kind, folder in (("job", "jobs"), ("profile", "cluster_profiles")):
        schema = json_schema(kind)
        files = sorted(resources.shipped(folder).rglob("*.yml"))
        assert files
        for path in files:
            data = read(path, kind).data
            assert problems(data, schema, schema["$defs"]) == [], path
    for kind, data, mistake in [
        ("job", {"node": 1}, "node is not known"),
        ("job", {"nodes": "2"}, "is no"),
        ("job", {"train": {}}, "configs is missing"),
        ("job", {"env": {"A-B": 1}}, "does not fit"),
        ("profile", {"title": "x"}, "scheduler is missing"),
        ("profile", {"extends": "abci"}, None),
        ("profile", {"extends": "abci", "scheduler": {"resource": "rt_HG"}}, None),
    ]:
        schema = json_schema(kind)
        found = problems(data, schema, schema["$defs"])
        assert (mistake is None and not found) or any(str(mistake) in problem for problem in found), (data, found)


def test_profile_fields_are_documented() -> None:
    """The schema of the whole profile names every part of `ClusterProfile`."""
    assert set(json_schema("profile")["$defs"]["ClusterProfile"]["properties"]) == set(ClusterProfile.__struct_fields__)

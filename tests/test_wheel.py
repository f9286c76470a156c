"""The wheel is the login-node tool: installed alone, in an empty environment, it renders for every cluster."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _requirements(name: str) -> Iterator[str]:
    """Yield the names of what ``name`` needs here without extras, itself included, each once."""
    left, seen = [name], set()
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        yield name
        for line in importlib.metadata.requires(name) or []:
            requirement, _, marker = line.partition(";")
            if "extra" not in marker and _applies(marker):
                left.append(re.split(r"[ \[<>=!~(]", requirement.strip())[0])


def _applies(marker: str) -> bool:
    from packaging.markers import Marker

    return not marker.strip() or Marker(marker).evaluate()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment that holds the wheel and what it says it needs, nothing else: no index is asked.

    The dependencies are linked from the environment of the tests; the wheel is built here and installed by pip.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    environment = folder / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    for name in _requirements("hpcjob"):
        for file in importlib.metadata.files(name) or [] if name != "hpcjob" else []:
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(str(file.locate()).removesuffix(str(file)) + top)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(environment), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return environment / "bin"


def _run(program: Path, *argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    return subprocess.run([program, *argv], cwd=folder, env=clean, capture_output=True, text=True, check=False)


def test_every_profile_renders_without_torch(installed: Path, tmp_path: Path) -> None:
    """Profiles, templates and job files travel in the wheel; torch is neither there nor needed."""
    assert _run(installed / "python", "-c", "import torch", folder=tmp_path).returncode == 1
    listed = _run(installed / "hpcjob", "profile", "list", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert {"abci2", "abci3", "lab", "local", "miyabi", "tsubame", "wisteria"} <= set(names)
    for name in [*names, "abci"]:
        nodes = "1" if name == "local" else "2"
        done = _run(installed / "hpcjob", "render", "--profile", name, "--nodes", nodes, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("#!/bin/bash\n")
        assert "neoxlite train" in done.stdout
    assert list(tmp_path.glob("[!.]*")) == []


def test_the_log_rules_and_configurations_travel_too(installed: Path, tmp_path: Path) -> None:
    """`tail` reads its rules and `neoxlite config` the shipped model sizes, both without torch."""
    (tmp_path / "job.out").write_text("node01:1:1 [0] NCCL INFO NET/IB : No device found.\n")
    tail = _run(installed / "hpcjob", "tail", "job.out", "--nccl", folder=tmp_path)
    assert tail.returncode == 0, tail.stderr
    assert tail.stdout
    config = _run(installed / "neoxlite", "config", "show", "2-7B", folder=tmp_path)
    assert config.returncode == 0, config.stderr
    assert "2,775,208,960" in config.stdout


def test_training_without_the_extra_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    """`neoxlite train` on the login-node tool ends in one clear line, not in a traceback."""
    done = _run(installed / "neoxlite", "train", "125M", folder=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "hpcjob[train]" in done.stderr

"""The script that makes the Python environment of a cluster's jobs, on a login node (``hpcjob env create``)."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob import __version__, resources
from hpcjob.documents.writing import plain_or_quoted
from hpcjob.errors import InputError
from hpcjob.templating import Loader, environment, mendable

if TYPE_CHECKING:
    from hpcjob.profile import ClusterProfile

_TEMPLATE = "env_create.sh.j2"
_INDEX = "https://download.pytorch.org/whl"
# CUDA versions of PyTorch's own wheels since 2.6: pytorch.org/get-started/previous-versions (2026-11).
WHEELS = ("11.8", "12.4", "12.6", "12.8", "12.9", "13.0")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*([^;]*)(?:;(.*))?")


def wheel_of(cuda: str) -> str:
    """Return the CUDA version of the wheels for a system of CUDA ``cuda``.

    The newest that is not newer. A wheel brings its own CUDA runtime, and a driver runs all of its major version: where
    there is none so old, the oldest of that major version.

    Raises:
        InputError: ``cuda`` is no version, or PyTorch has no wheels for its major version.
    """
    if not re.fullmatch(r"\d+(\.\d+)*", cuda):
        raise InputError(f"--cuda: {cuda!r} is not a version", hint="write for example 12.6, or none for CPU wheels")
    wanted = _numbers(cuda)
    same = [wheel for wheel in WHEELS if _numbers(wheel)[0] == wanted[0]]
    if not same:
        raise InputError(f"--cuda: PyTorch has no wheels for CUDA {cuda}", hint=f"it has {', '.join(WHEELS)}")
    return max((wheel for wheel in same if _numbers(wheel) <= wanted), key=_numbers, default=same[0])


def _numbers(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    return int(major), int(rest.partition(".")[0] or 99)


def setup_script(
    profile: ClusterProfile,
    *,
    venv: Path,
    python: str = "python3",
    cuda: str | None = None,
    torch: str | None = None,
    project: str | None = None,
) -> str:
    """Return the script that sets up ``venv`` for jobs on ``profile``.

    Args:
        venv: absolute path of the virtual environment.
        python: interpreter, looked for after the modules.
        cuda: CUDA version in the place of the profile's; ``none``: wheels without CUDA.
        torch: version of torch; None: the newest of those wheels that hpcjob works with.
        project: what pip installs as hpcjob; None: the checkout that this is, else this version.

    Raises:
        InputError: which wheels to take is not known, or a value fits no shell.
        HpcjobError: the user's own template of that name is broken.
    """
    cuda, why = _cuda(profile, cuda)
    if torch and not re.fullmatch(r"\d+(\.\d+)*[\w.+-]*", torch, re.ASCII):
        raise InputError(f"--torch: {torch!r} is not a version", hint="write for example 2.9.1, or omit it")
    tag = "cpu" if cuda is None else f"cu{wheel_of(cuda).replace('.', '')}"
    index = f"{_INDEX}/{tag}"
    values = {
        "title": profile.title,
        "profile": profile.name,
        "version": __version__,
        "cuda_words": "the CPU" if cuda is None else f"CUDA {cuda}",
        "venv": str(venv),
        "modules": profile.modules.load,
        "module_use": profile.modules.use,
        "module_init": profile.modules.init,
        "module_purge": profile.modules.purge,
        "python": python,
        "python_line": f"python: {{venv: {plain_or_quoted(str(venv))}}}",
        "python_failure": f"there is no {python} (--python PATH, or a python module in the profile)",
        "python_old": f"{python} is older than 3.10 (--python PATH, or a python module in the profile)",
        "torch": f"torch=={torch}" if torch else _requirement("torch"),
        "torch_why": why,
        "torch_advice": f"look whether this machine reaches {index}, and the quota of this folder",
        "index": index,
        "deepspeed": _requirement("deepspeed"),
        "project": project or _own_project(),
    }
    loader = Loader()
    with mendable(_TEMPLATE, loader):
        return environment(loader, profile.scheduler.type).get_template(_TEMPLATE).render(values)


def _cuda(profile: ClusterProfile, given: str | None) -> tuple[str | None, str]:
    """Return the CUDA version to take wheels for, None for those without, and why that one."""
    if given is not None:
        return (None, "") if given == "none" else (given, "")
    if profile.versions.cuda:
        wheel = wheel_of(profile.versions.cuda)
        return profile.versions.cuda, f"The profile has CUDA {profile.versions.cuda}: PyTorch's wheels for {wheel}."
    if profile.node.gpus == 0:
        return None, "The profile has no GPUs."
    raise InputError(
        f"{profile.name} declares no CUDA version (versions.cuda)",
        hint="give it: --cuda 12.6 (what `nvcc --version` says after its modules), or --cuda none",
    )


def _requirement(name: str) -> str:
    """Return what this version of hpcjob requires of a package for training, as pip reads it."""
    try:
        required = metadata.requires("hpcjob") or []
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        required = []
    for line in required:
        match = _REQUIREMENT.match(line)
        if match and match[1] == name:
            return f"{name}{match[2].strip().strip('()').replace(' ', '')}"
    return name


def _own_project() -> str:
    folder = resources.shipped("templates").parent
    return f"{folder}[train]" if (folder / "pyproject.toml").is_file() else f"hpcjob[train]=={__version__}"

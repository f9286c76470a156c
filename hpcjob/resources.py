"""Where profiles, templates and job files are found: the user's own first, then those shipped with hpcjob."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from hpcjob.home import expanded

PROFILES, JOBS = "cluster_profiles", "jobs"
_PACKAGE = Path(__file__).resolve().parent


@functools.cache
def shipped(kind: str) -> Path:
    """Return the shipped folder of ``kind``: package data of the wheel, the top-level folder in a checkout."""
    packaged = _PACKAGE / "_data" / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind


def config_dir() -> Path:
    """Return the user's configuration folder (``$XDG_CONFIG_HOME/hpcjob``, by default ``~/.config/hpcjob``)."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return expanded(base) / "hpcjob"


def folders(kind: str) -> Iterator[Path]:
    """Yield the folders of ``kind`` that exist, most specific first: here, the user's, ``HPCJOB_PATH``, shipped."""
    own = [Path(kind), config_dir() / kind]
    own += [expanded(part) / kind for part in os.environ.get("HPCJOB_PATH", "").split(os.pathsep) if part]
    last = shipped(kind)
    found = [folder for folder in own if os.path.isdir(folder)]  # noqa: PTH112 - called often, and a Path is slow
    yield from (folder for folder in found if not folder.samefile(last))
    yield last


def find(kind: str, name: str) -> tuple[Path | None, Path | None]:
    """Return the file used for ``kind``/``name`` and the shipped one it shadows; None where there is none."""
    hits = [folder / name for folder in folders(kind) if os.path.isfile(folder / name)]  # noqa: PTH113 - see above
    if not hits:
        return None, None
    ours = shipped(kind) / name
    return hits[0], ours if len(hits) > 1 and hits[0] != ours and ours in hits else None


def label(path: Path) -> str:
    """Return a file as scripts and messages name it: ``hpcjob:jobs/quickstart.yml`` if shipped, else its path."""
    real = path.resolve()
    for kind in (PROFILES, JOBS):
        ours = shipped(kind).resolve()
        if real.is_relative_to(ours):
            return f"hpcjob:{kind}/{real.relative_to(ours)}"
    return str(path)

"""The flight recorder's files among those of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hpcjob.logs.explain.flight.dump import Dump, NoDumpError, looks_like, rank_of, read
from hpcjob.logs.lazy import lazy

# PyTorch's default, what people rename it to, and torchtitan's folder of them.
_NAMES = lazy(r"(?:.*(?:trace|flight|fr_dump)\w*?[_.-]?(?:rank)?[_.-]?|rank[_.-]?)\d{1,7}(?:\.(?:json|pickle|pkl))?")
_NOT_DUMPS = (".log", ".out", ".err", ".txt", ".gz", ".zst", ".xz", ".bz2", ".yml", ".py")
_DEPTH_AT_MOST = 3
_FILES_AT_MOST = 100_000
_HEAD_BYTES = 2


def dumps_below(directory: Path) -> list[Path]:
    """Return the files in and below a folder that are named like dumps, those of the lowest rank first."""
    found: list[Path] = []
    for folder, folders, names in os.walk(directory):
        if len(Path(folder).relative_to(directory).parts) >= _DEPTH_AT_MOST or len(found) >= _FILES_AT_MOST:
            folders.clear()
        found += [Path(folder, name) for name in names if _NAMES.fullmatch(name) and not name.endswith(_NOT_DUMPS)]
    return sorted(found, key=lambda path: (rank_of(path) or 0, path.name))


def is_dump(path: Path) -> bool:
    """Whether a file that was named is a dump and no log: a pickle by its first bytes, or JSON by its name."""
    if _NAMES.fullmatch(path.name) and path.suffix == ".json":
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return looks_like(file.read(_HEAD_BYTES))
    except OSError:
        return False


def read_all(paths: Iterable[Path]) -> tuple[dict[int, Dump], list[str]]:
    """Read dumps, of several of one rank the latest that can be read.

    Returns them by rank, and what is wrong with those left out.
    """
    by_rank: dict[int, list[Path]] = {}
    problems = []
    for path in paths:
        rank = rank_of(path)
        if rank is None:
            problems.append(f"{path.name}: a flight recorder's file whose name does not end in a rank")
        else:
            by_rank.setdefault(rank, []).append(path)
    dumps: dict[int, Dump] = {}
    for rank, files in sorted(by_rank.items()):
        for path in sorted(files, key=_preference, reverse=True):
            dump, problem = _read(path, rank)
            if dump is not None:
                dumps[rank] = dump
                break
            if problem is not None:
                problems.append(problem)
    return dumps, problems


def _preference(path: Path) -> tuple[bool, int]:
    """Pickles before JSON, which has no places in the program; the newest first."""
    try:
        return path.suffix != ".json", path.stat().st_mtime_ns
    except OSError:  # gone since: reading it will say so
        return path.suffix != ".json", 0


def _read(path: Path, rank: int) -> tuple[Dump | None, str | None]:
    try:
        return read(path, rank), None
    except NoDumpError:
        return None, None  # JSON of something else, such as a profiler's trace
    except (OSError, ValueError) as error:
        return None, f"{path.name}: not read as a dump of the flight recorder: {error}"

"""Cluster profiles by name, alias or path, with those that they extend.

A profile in a folder of profiles is called as its file is, without ``.yml``: by that it is found, and a copy of
another's file is another profile whatever it says of itself. Of a file that is given by its path ``name:`` counts, if
it has one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document, KeyPath, merge
from hpcjob.documents.reading import MAX_BYTES, parse, read
from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.loading.env import keep_env
from hpcjob.loading.overrides import Override
from hpcjob.profile import ClusterProfile
from hpcjob.regular import read_regular
from hpcjob.resources import PROFILES, folders, label, shipped
from hpcjob.source import Source
from neoxlite.common.near import did_you_mean
from neoxlite.common.paths import exists

_ALIASES_LINE = re.compile(rb"^aliases:.*$", re.MULTILINE)
_OWN = ("aliases", "status", "name")  # keys of a profile that one which extends it does not have from it
_OF_GPU = ("gpu_memory_gib", "peak_tflops")  # keys of a node that are true of one model of GPU alone


def profile_names() -> list[str]:
    """Return the names of all profiles that are found, sorted; aliases are not among them."""
    return sorted({path.stem for folder in folders(PROFILES) for path in folder.glob("*.yml")})


def aliases() -> list[str]:
    """Return the aliases of all profiles that are found."""
    return [alias for path in _files(folders(PROFILES)) for alias in _aliases_of(path)]


def load_profile(name_or_path: str, *, notes: list[str] | None = None) -> tuple[ClusterProfile, Path]:
    """Return the profile of that name, alias or path, and its file.

    Args:
        notes: here is announced a profile of the user's that hides a shipped one, or whose ``name:`` is not its file's.

    Raises:
        InputError: there is none of that name (near names are offered), or it is no valid profile.
    """
    profile, source = read_profile(name_or_path, notes=notes)
    return profile, source.path


def read_profile(
    name_or_path: str, overrides: Iterable[Override] = (), *, notes: list[str] | None = None
) -> tuple[ClusterProfile, Source]:
    """Return the profile with ``overrides`` on top, and where it came from. See `load_profile`."""
    path = _find(name_or_path)
    if notes is not None and (hidden := _hidden(path, name_or_path)):
        notes.append(f"profile {name_or_path}: {path} is used, it hides the shipped {label(hidden)}")
    chain = _extended(path)
    document = _merged([document for _, document in chain])
    said = document.data.setdefault("name", path.stem)
    if isinstance(said, str) and said != path.stem and not _is_path(name_or_path):
        if notes is not None:
            notes.append(_called_otherwise(path, document))
        document.data["name"] = path.stem
    known = _gpus(document)
    for override in overrides:
        override.apply(document)
    _forget_other_gpus(document, known)
    keep_env(document)
    profile = convert(document, ClusterProfile, "profile")
    return profile, Source.of(path, [file for file, _ in chain[1:]])


def profile_chain(name_or_path: str) -> list[Path]:
    """Return the file of a profile and those it extends, nearest first. Raises InputError as `load_profile`."""
    return [path for path, _ in _extended(_find(name_or_path))]


def _find(name: str, *, but: Sequence[Path] = ()) -> Path:
    if _is_path(name):
        return expanded(name)
    for path in _called(name):
        if not any(path.samefile(other) for other in but):
            return path
    if (other := _naming(name)) is not None:
        told = f"{other} says `name: {name}`, but the file's name counts: -p {other.stem}, or call the file {name}.yml"
        raise InputError(f"no profile {name!r}", hint=told)
    known = profile_names()
    offered = did_you_mean(name, [*known, *aliases()])
    hint = f"profiles: {', '.join(known)} (`hpcjob profile list`)"
    raise InputError(f"no profile {name!r}", hint=f"{offered} {hint}" if offered else hint)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yml", ".yaml"))


def _called(name: str) -> Iterator[Path]:
    """Yield the profiles of that name or alias, the one to use first."""
    places = list(folders(PROFILES))
    named = [folder / f"{name}.yml" for folder in places]
    yield from (path for path in named if os.path.isfile(path))  # noqa: PTH113 - false in a closed folder
    yield from (path for path in _files(places) if path not in named and name in _aliases_of(path))


def _called_otherwise(path: Path, document: Document) -> str:
    said = document.data["name"]
    return f"profile {path.stem}: {document.place(('name',))} says `name: {said}`; the file's name counts"


def _naming(name: str) -> Path | None:
    """Return a profile that calls itself ``name`` and is not called so; a broken file is none."""
    for path in _files(folders(PROFILES)):
        with contextlib.suppress(OSError, InputError):
            if read(path, "profile").data.get("name") == name:
                return path
    return None


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for folder in places:
        yield from sorted(folder.glob("*.yml"))


def _aliases_of(path: Path) -> list[str]:
    """Return the aliases of a profile from its one line, without reading the whole; a broken file has none."""
    try:
        line = _ALIASES_LINE.search(read_regular(path, MAX_BYTES))
        found = parse(line[0].decode(), str(path), "profile").data["aliases"] if line else []
    except (OSError, UnicodeDecodeError, InputError):
        return []
    return [str(alias) for alias in found] if isinstance(found, list) else []


def _hidden(path: Path, name: str) -> Path | None:
    """Return the shipped profile that the user's ``path`` hides under ``name``, if there is one."""
    ours = shipped(PROFILES)
    if _is_path(name) or path.parent.samefile(ours):
        return None
    return next((other for other in _called(name) if other.parent.samefile(ours)), None)


def _extended(path: Path) -> list[tuple[Path, Document]]:
    """Return the profile at ``path`` and those it extends, nearest first.

    A profile may extend a shipped one of its own name. Raises InputError where the chain comes back to itself.
    """
    chain = [(path, read(path, "profile"))]
    while (parent := chain[-1][1].data.get("extends")) is not None:
        file, document = chain[-1]
        place = document.place(("extends",))
        found = _parent(parent, file, place)
        seen = [other for other, _ in chain]
        if exists(found) and any(found.samefile(other) for other in seen):
            ring = " -> ".join(str(other) for other in [*seen, found])
            raise InputError(f"{place}: profiles extend each other in a cycle: {ring}", hint="break the cycle")
        chain.append((found, read(found, "profile")))
    return chain


def _parent(name: object, file: Path, place: str) -> Path:
    """Return the profile that ``file`` extends; a path is relative to that file."""
    if not isinstance(name, str):
        raise InputError(f"{place}: extends: {name!r} is not a name", hint="write the name of one profile")
    if _is_path(name):
        return file.parent / expanded(name)
    try:
        return _find(name, but=[file])
    except InputError as error:
        if any(path.samefile(file) for path in _called(name)):
            raise InputError(
                f"{place}: extends: {name!r} is this profile, and there is no other", hint="name another one"
            ) from None
        raise InputError(f"{place}: extends: {error.message}", hint=error.hint) from None


def _merged(chain: Sequence[Document]) -> Document:
    """Return the profile that a chain of them makes, the nearest first."""
    document = chain[-1]
    for over in reversed(chain[:-1]):
        for own in _OWN:
            document.data.pop(own, None)
        known = _gpus(document)
        document = merge(document, over)
        _forget_other_gpus(document, known)
    return document


def _nodes(document: Document) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the mapping of each node, of the profile and of its queues, with its path; others are refused later."""
    queues = document.data.get("queues")
    named = [(("queues", name), queue) for name, queue in queues.items()] if isinstance(queues, dict) else []
    for path, holder in [((), document.data), *named]:
        if isinstance(holder, dict) and isinstance(node := holder.get("node"), dict):
            yield (*path, "node"), node


def _gpus(document: Document) -> dict[KeyPath, tuple[object, dict[str, str | None]]]:
    """Return the GPU of each node by the node's path: its model, and where each value about it was given."""
    return {
        path: (node.get("gpu"), {key: document.places.get((*path, key)) for key in ("gpu", *_OF_GPU)})
        for path, node in _nodes(document)
    }


def _forget_other_gpus(document: Document, known: Mapping[KeyPath, tuple[object, dict[str, str | None]]]) -> None:
    """Leave out what was ``known`` of a GPU that its node has no longer: with its peak each MFU of another is wrong."""
    for path, node in _nodes(document):
        model, places = known.get(path, (None, {}))
        gone = ("gpu", *_OF_GPU) if node.get("gpus") == 0 else _OF_GPU if node.get("gpu") != model else ()
        for key in gone:
            place, where = places.get(key), (*path, key)
            if place is not None and document.places.get(where) == place:
                del node[key], document.places[where]

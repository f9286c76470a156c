"""Reading configuration files: where they are, what they say, and on which line.

GPT-NeoX's rules for names and merging (megatron/neox_arguments/arguments.py): ``-d DIR`` goes before every name, a name
without .yml or .json gets .yml, a ``-`` in a top-level key is a ``_``, and a key may be given once only.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from neoxlite.common.paths import exists, is_dir, is_file
from neoxlite.config.values import plain
from neoxlite.config.yaml_damage import damaged
from neoxlite.errors import ConfigError

# libyaml's scanner accepts tabs between the items of a {...} block, which JSON-style files have; PyYAML's own does not.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_SHOWN = 12  # files that a message lists
_MOST_VALUES = 100_000  # of one file, each alias counted as what it stands for

# What PyYAML lets through for values like !!bool x, !!int _ or 2026-13-45, and all of it with what is not YAML.
_VALUE_ERRORS = (ValueError, LookupError, AttributeError, OverflowError)
YAML_ERRORS = (yaml.YAMLError, RecursionError, *_VALUE_ERRORS)


@dataclass(frozen=True)
class Place:
    """Where a value stands: a file and line, or a name such as ``--set``; and the key there, if it is an old one."""

    file: str
    line: int | None
    old_key: str | None = None

    @property
    def where(self) -> str:
        """``folder/file.yml:12``, or the name of the source where there are no lines; ``... (gas)`` of an old key."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return place if self.old_key is None else f"{place} ({self.old_key})"

    @property
    def short(self) -> str:
        """The same without the folders; file names are unique in a configuration."""
        return self.file if self.line is None else f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Entry:
    """One top-level key as written: its value, its spelling, and its place; of a block also the places inside."""

    value: Any
    spelling: str
    place: Place
    inner: Mapping[str, Place] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The place of the key, for messages."""
        return self.place.where

    def place_of(self, path: str) -> Place | None:
        """Return the place of the dotted ``path`` inside a block, or of the part of it that was given as a whole.

        A block that was given without places inside is a whole; otherwise None says that ``path`` was not given.
        """
        while path:
            if path in self.inner:
                return self.inner[path]
            path = path.rpartition(".")[0]
        return None if self.inner else self.place


def shipped_folder() -> Path:
    """Return the folder of the configurations that come with neoxlite."""
    return Path(str(resources.files("neoxlite").joinpath("configs")))


def find_file(name: str, conf_dir: Path | None = None) -> Path:
    """Return the file that ``name`` means.

    With ``conf_dir`` the name is looked up there only. Without, in the current folder, then among the configurations
    that come with neoxlite.

    Raises:
        ConfigError: there is no such file; the hint names files like it.
    """
    folders = [conf_dir] if conf_dir is not None else [Path(), shipped_folder()]
    full = name if name.endswith((".yml", ".yaml", ".json")) else f"{name}.yml"
    for folder in folders:
        path = folder / full
        if is_file(path):
            return path
    first = folders[0] / full
    if os.path.lexists(first):
        raise ConfigError(f"{first}: {_no_file(first)}", hint="give a YAML file")
    raise ConfigError(f"{first}: no such configuration file", hint=_file_hint(full, folders))


def _no_file(path: Path) -> str:
    """Return what is at ``path``, where it is no regular file."""
    if is_dir(path):
        return "a folder, not a configuration file"
    return "a pipe or a device, not a configuration file" if exists(path) else "a link to nothing, or to itself"


def _file_hint(name: str, folders: list[Path]) -> str:
    there, *shipped = [_files_of(folder) for folder in folders]
    near = _near_files(name, sorted({*there, *(file for files in shipped for file in files)}))
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not is_dir(folders[0]):
        gone = f"the folder {folders[0]} does not exist"
        return f"{gone}; {name} comes with neoxlite: omit -d" if is_file(shipped_folder() / name) else gone
    parts = [f"files there: {_some(there)}"] if there else []
    parts += [f"with neoxlite come {_some(files)}" for files in shipped]
    return "; ".join(parts) or "check the name and -d DIR"


def _some(files: list[str]) -> str:
    return ", ".join(files[:_SHOWN]) + (", ..." if files[_SHOWN:] else "")


def _files_of(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for pattern in ("*.yml", "*/*.yml", "*.yaml", "*.json")
        for path in (folder.glob(pattern) if is_dir(folder) else ())
        if os.path.isfile(path)  # noqa: PTH113 - Path's own raises where a link leads to what may not be seen
    )


def _near_files(name: str, present: Iterable[str]) -> list[str]:
    """Return up to three of ``present`` that are called like ``name``; folders may be missing, endings do not count."""
    stems: dict[str, str] = {}
    for file in present:
        stem = Path(file).with_suffix("").as_posix().lower()
        stems.setdefault(stem, file)
        stems.setdefault(stem.rpartition("/")[2], file)
    wanted = Path(name).with_suffix("").as_posix().lower()
    near = [stems[stem] for stem in difflib.get_close_matches(wanted, stems, n=6)]
    return list(dict.fromkeys(near))[:3]


@dataclass(frozen=True)
class Files:
    """What a list of files says: top-level keys, spelled with underscores, and each file's path and text."""

    entries: dict[str, Entry]
    texts: dict[str, str]
    paths: tuple[str, ...]


def read_files(names: Iterable[str], conf_dir: Path | None = None) -> Files:
    """Read files and put their keys together.

    Raises:
        ConfigError: a file is missing or damaged, a key is given twice, or two files have one name.
    """
    entries: dict[str, Entry] = {}
    texts: dict[str, str] = {}
    paths: dict[str, Path] = {}
    for name in names:
        path = find_file(name, conf_dir)
        if path.name in paths:
            raise ConfigError(
                f"two configuration files are called {path.name}: {paths[path.name]} and {path}",
                hint="rename one: both are saved beside the checkpoints under their own names",
            )
        paths[path.name] = path
        texts[path.name] = _text(path)
        for key, entry in _parse(path, texts[path.name]).items():
            if key in entries:
                raise _twice(key, entries[key], entry)
            entries[key] = entry
    return Files(entries, texts, tuple(str(path) for path in paths.values()))


def _twice(key: str, first: Entry, second: Entry) -> ConfigError:
    places = " and ".join(f"{entry.where} ({plain(entry.spelling)})" for entry in (first, second))
    return ConfigError(f"{plain(key)} is given twice: {places}", hint="remove one of the two")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8", hint="save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="check the file's permissions") from error


def _parse(path: Path, text: str) -> dict[str, Entry]:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return {}
            if not isinstance(node, yaml.MappingNode):
                raise ConfigError(
                    f"{path}:{node.start_mark.line + 1}: the file is a {node.id}, not a mapping of keys",
                    hint="write lines of 'key: value'",
                )
            _refuse_repeats(node, path, text)
            return _entries(loader, node, path)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise damaged(path, text, error) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply", hint="check the brackets of the file") from error


def _entries(loader: Any, node: yaml.MappingNode, path: Path) -> dict[str, Entry]:
    loader.flatten_mapping(node)
    entries: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise ConfigError(f"{path}:{line}: a key that is not a text", hint="put it in quotes")
        spelling = key_node.value
        try:
            value = loader.construct_object(value_node, deep=True)
        except _VALUE_ERRORS as error:
            raise ConfigError(
                f"{path}:{line}: {plain(spelling)}: the value is not what YAML takes it for", hint="put it in quotes"
            ) from error
        entry = Entry(value, spelling, Place(str(path), line), dict(_places(value_node, str(path))))
        key = spelling.replace("-", "_")
        if key in entries and repr(entries[key].value) != repr(value):
            raise _twice(key, entries[key], entry)
        entries[key] = entry
    return entries


def _places(node: yaml.Node, file: str, prefix: str = "") -> Iterator[tuple[str, Place]]:
    """Yield (dotted path, place) of every key in the mappings of ``node``."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        if isinstance(key_node, yaml.ScalarNode):
            path = prefix + key_node.value
            yield path, Place(file, key_node.start_mark.line + 1)
            yield from _places(value_node, file, f"{path}.")


def _refuse_repeats(root: yaml.Node, path: Path, text: str) -> None:
    """Refuse a key with two values in one mapping, at any depth; YAML loaders keep the last one silently."""
    stack = [root]
    for _ in range(_MOST_VALUES):
        if not stack:
            return
        node = stack.pop()
        if isinstance(node, yaml.SequenceNode):
            stack += node.value
        elif isinstance(node, yaml.MappingNode):
            stack += [value for _, value in node.value]
            _refuse_repeats_in(node, path, text)
    raise ConfigError(
        f"{path}: more than {_MOST_VALUES:,} values",
        hint="a configuration has some dozens: is an alias part of itself?",
    )


def _refuse_repeats_in(node: yaml.MappingNode, path: Path, text: str) -> None:
    seen: dict[str, tuple[int, str]] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            continue
        line, written = key_node.start_mark.line + 1, _written(value_node, text)
        first, before = seen.setdefault(key_node.value, (line, written))
        if written != before:
            raise ConfigError(
                f"{path}:{line}: {plain(key_node.value)} is given twice; the first is on line {first}",
                hint="remove one of the two",
            )


def _written(node: yaml.Node, text: str) -> str:
    """Return the text of a value, without what follows it up to the next key or comment."""
    return text[node.start_mark.index : node.end_mark.index].strip()

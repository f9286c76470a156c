"""YAML documents checked against a structure; every mistake is told with its file, line and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hpcjob.errors import InputError

T = TypeVar("T", bound=msgspec.Struct)
Path_ = tuple[str | int, ...]

_MAX_BYTES = 1_000_000
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.+?)`")
_AT = re.compile(r" - at `(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Document:
    """A mapping read from a file or given on the command line, with the place of each key.

    Attributes:
        data: the mapping, as YAML gave it.
        places: path of keys -> "file:line" or the option that set it.
        origin: the file's name, or where the document comes from.
    """

    data: dict[str, Any]
    places: dict[Path_, str] = field(default_factory=dict)
    origin: str = "<none>"

    def place(self, path: Path_) -> str:
        """Return where ``path`` or its nearest known parent was set."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.origin

    def set(self, path: str, value: Any, place: str) -> None:
        """Set ``a.b.c`` to ``value``; mappings on the way are made.

        Raises:
            InputError: a part of the path is there and is no mapping.
        """
        parts = path.split(".")
        target = self.data
        for depth, part in enumerate(parts[:-1]):
            inner = target.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(
                    f"{place}: {'.'.join(parts[: depth + 1])} is {inner!r}, it holds no key {parts[depth + 1]!r}",
                    hint="give the whole value instead, or mend the path",
                )
            target = inner
        target[parts[-1]] = value
        self.places[tuple(parts)] = place


def read(path: Path, what: str) -> Document:
    """Read one YAML mapping from ``path``. ``what`` names its kind in errors ("job file", "profile").

    Raises:
        InputError: the file is missing, unreadable, too large, no YAML, no mapping, or has a key twice.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such {what}", hint=_near_files(path)) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint=f"check that the {what} can be read") from None
    if len(raw) > _MAX_BYTES:
        raise InputError(f"{path}: {len(raw)} bytes, too large for a {what}", hint="is this the right file?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: byte {error.start} is not UTF-8", hint="save the file as UTF-8 (iconv -f SHIFT_JIS -t UTF-8)"
        ) from None
    return parse(text, str(path), what)


def parse(text: str, origin: str, what: str) -> Document:
    """Parse one YAML mapping from ``text``. Raises InputError as `read` does."""
    try:
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            document = Document({}, origin=origin)
            if node is not None:
                _mark(node, (), document)
                document.data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise InputError(f"{origin}: {_yaml_message(error)}", hint=f"the {what} must be YAML") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: {error}", hint=f"the {what} must be plain YAML") from None
    if not isinstance(document.data, dict):
        raise InputError(f"{origin}: the {what} is no mapping of keys to values", hint="write `key: value` lines")
    return document


def convert(document: Document, kind: type[T], what: str) -> T:
    """Return ``document`` as a ``kind``.

    Raises:
        InputError: a key is unknown (near names are offered), missing, or its value has the wrong type.
    """
    try:
        return msgspec.convert(document.data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _explain(str(error), document, kind, what) from None


def _explain(message: str, document: Document, kind: type[msgspec.Struct], what: str) -> InputError:
    path: Path_ = ()
    if at := _AT.search(message):
        message = message[: at.start()]
        path = tuple(step[1] or int(step[2] or 0) for step in _STEP.finditer(at[1].removeprefix("$")))
    if unknown := _UNKNOWN_FIELD.match(message):
        name = unknown[1]
        known = _field_names(kind, path)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known keys: {', '.join(sorted(known))}"
        return InputError(f"{document.place((*path, name))}: {what} has no key {_dotted((*path, name))!r}", hint=hint)
    return InputError(
        f"{document.place(path)}: {_dotted(path) or what}: {message[0].lower()}{message[1:]}{_found(document, path)}",
        hint=f"see the keys of a {what} in the documentation, or `hpcjob schema`",
    )


def _found(document: Document, path: Path_) -> str:
    value: Any = document.data
    try:
        for part in path:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return ""
    text = repr(value)
    return "" if isinstance(value, (dict, list)) else f" ({text if len(text) < 60 else text[:57] + '...'})"


def _field_names(kind: Any, path: Path_) -> list[str]:
    info = msgspec.inspect.type_info(kind)
    for part in path:
        info = _descend(info, part)
    return [f.encode_name for f in _structs(info) for f in f.fields]


def _structs(info: Any) -> list[Any]:
    if isinstance(info, msgspec.inspect.StructType):
        return [info]
    if isinstance(info, msgspec.inspect.UnionType):
        return [struct for member in info.types for struct in _structs(member)]
    return []


def _descend(info: Any, part: str | int) -> Any:
    if isinstance(info, msgspec.inspect.UnionType):
        for member in info.types:
            found = _descend(member, part)
            if found is not None:
                return found
        return None
    if isinstance(info, msgspec.inspect.StructType):
        return next((f.type for f in info.fields if f.encode_name == part), None)
    if isinstance(info, msgspec.inspect.DictType):
        return info.value_type
    return getattr(info, "item_type", None)


def _mark(node: yaml.Node, path: Path_, document: Document) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.value)
            line = key_node.start_mark.line + 1
            inner: Path_ = (*path, key)
            if key in seen and key != "<<":
                raise InputError(
                    f"{document.origin}:{line}: {_dotted(inner)} stands twice, first on line {seen[key]}",
                    hint="remove one of them",
                )
            seen[key] = line
            document.places[inner] = f"{document.origin}:{line}"
            _mark(value_node, inner, document)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = (*path, index)
            document.places[inner] = f"{document.origin}:{item.start_mark.line + 1}"
            _mark(item, inner, document)


def merge(base: Document, over: Document) -> Document:
    """Return ``base`` with ``over`` on top: mappings are merged, everything else is replaced."""
    return Document(_merged(base.data, over.data), {**base.places, **over.places}, over.origin)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result


def _dotted(path: Path_) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _yaml_message(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())


def _near_files(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f"the folder {path.parent} cannot be read either"
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"near it: {', '.join(near)}" if near else "check the path"

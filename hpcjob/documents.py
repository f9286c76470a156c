"""YAML documents checked against a structure; every mistake is told with its file, line and key."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hpcjob.coreyaml import CoreLoader
from hpcjob.errors import InputError
from hpcjob.regular import read_regular

T = TypeVar("T", bound=msgspec.Struct)
Path_ = tuple[str | int, ...]

MAX_BYTES = 1_000_000
_MAX_NODES = 50_000
_SCHEMAS = ("job file", "profile")
_OF_OPTION = "value"  # what `parse` reads for `set_text`
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.+?)`")
_NOT_TAKEN = re.compile(r"Invalid enum value (.+)")
_AT = re.compile(r" - at `(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")  # `[...]`, some value of a mapping, says nothing


class Document(msgspec.Struct):
    """A mapping read from a file or given on the command line, with the place of each key.

    Attributes:
        data: the mapping, as YAML gave it.
        places: path of keys -> "file:line" or the option that set it.
        origin: the file's name, or where the document comes from.
        texts: path of each scalar -> its text as written, where `data` holds a number or a boolean made from it.
    """

    data: dict[str, Any]
    places: dict[Path_, str] = {}
    origin: str = "<none>"
    texts: dict[Path_, str] = {}

    def place(self, path: Path_) -> str:
        """Return where ``path``, something in it, or its nearest known parent was set."""
        for length in range(len(path), 0, -1):
            for known, place in self.places.items():
                if known[:length] == path[:length]:
                    return place
        return self.origin

    def set(self, path: str | Path_, value: Any, place: str) -> Path_:
        """Set ``a.b.c`` to ``value``; mappings on the way are made, ``steps.0`` is the first item of a list.

        Returns:
            the path that was set.

        Raises:
            InputError: a part of the path is there and holds no such key.
        """
        parts: list[str | int] = list(_parts(path, place))
        target: Any = self.data
        for depth, part in enumerate(parts):
            parts[depth] = _key_in(target, part, parts[:depth], place)
            if depth == len(parts) - 1:
                target[parts[depth]] = value
            else:
                if isinstance(target, dict) and target.get(part) is None:
                    target[part] = {}
                target = target[parts[depth]]
        where = tuple(parts)
        for known in [known for known in self.texts if known[: len(where)] == where]:
            del self.texts[known]
        self.places[where] = place
        return where

    def set_text(self, path: str | Path_, text: str, place: str) -> None:
        """Set ``a.b.c`` to the YAML value that ``text`` spells. Raises InputError as `set`, or if it is no YAML."""
        inner = parse(f"value: {text}" if "\n" not in text else f"value: {json.dumps(text)}", place, _OF_OPTION)
        if list(inner.data) != ["value"]:
            raise InputError(f"{place}: {text!r} is not one YAML value", hint="quote it, for the shell and for YAML")
        where = self.set(path, inner.data["value"], place)
        self.texts.update({(*where, *known[1:]): written for known, written in inner.texts.items()})

    def keep_text(self, path: Path_) -> dict[str, Any]:
        """Make the numbers and booleans directly below ``path`` text as they were written: ``1.10`` stays so.

        Returns:
            the mapping at ``path``; an empty one where there is none.
        """
        target: Any = self.data
        for part in path:
            target = target.get(part) if isinstance(target, dict) else target[part]
        if not isinstance(target, dict):
            return {}
        for key, value in target.items():
            if value is None and self.texts.get((*path, key)) == "":
                target[key] = ""
            elif isinstance(value, (bool, int, float)):
                target[key] = self.texts.get((*path, key), str(value))
        return target


def _parts(path: str | Path_, place: str) -> Path_:
    if not isinstance(path, str):
        return path
    parts = tuple(path.split("."))
    if not all(parts):
        raise InputError(f"{place}: {path!r} is no path of keys", hint="write for example train.set.train_iters=10")
    return parts


def _key_in(target: Any, part: str | int, above: Sequence[str | int], place: str) -> str | int:
    if isinstance(target, dict):
        return part
    if isinstance(target, list) and str(part).isdecimal() and int(part) < len(target):
        return int(part)
    shown = repr(target) if len(repr(target)) < 60 else f"{repr(target)[:57]}..."
    raise InputError(
        f"{place}: {dotted(tuple(above))} is {shown}, it holds no key {part!r}",
        hint="give the whole value instead, or mend the path",
    )


def read(path: Path, what: str) -> Document:
    """Read one YAML mapping from ``path``. ``what`` names its kind in errors ("job file", "profile").

    Raises:
        InputError: the file is missing, unreadable, too large, no YAML, no mapping, or has a key twice.
    """
    try:
        raw = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such {what}", hint=_near_files(path)) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint=f"check that the {what} can be read") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: more than {MAX_BYTES} bytes, too large for a {what}", hint="is this the right file?")
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
        loader = CoreLoader(text)
        try:
            node = loader.get_single_node()
            document = Document({}, origin=origin)
            if node is not None:
                _mark(node, (), document)
                document.data = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _yaml_error(error, origin, what) from None
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"{origin}: {error}", hint=f"the {what} must be plain YAML") from None
    except RecursionError:
        raise InputError(f"{origin}: nested too deeply", hint="has an alias (*name) a place in itself?") from None
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
        path = tuple(step[1] or int(step[2]) for step in _STEP.finditer(at[1].removeprefix("$")))
    if unknown := _UNKNOWN_FIELD.match(message):
        name = unknown[1]
        known = _field_names(kind, path)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known keys: {', '.join(sorted(known))}"
        return InputError(f"{document.place((*path, name))}: {what} has no key {dotted((*path, name))!r}", hint=hint)
    words = f"{message[0].lower()}{message[1:]}{_found(document, path)}"
    if (wrong := _NOT_TAKEN.match(message)) and (taken := _taken(kind, path)):
        words = f"{wrong[1]} is not {'one of ' if len(taken) > 1 else ''}{', '.join(taken)}"
    return InputError(
        f"{document.place(path)}: {dotted(path) or what}: {words}",
        hint=f"`hpcjob schema {what.split()[0]}` prints all keys and their types" if what in _SCHEMAS else None,
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


def _taken(kind: Any, path: Path_) -> list[str]:
    """Return the values that a key takes; empty: they are not listed."""
    info = msgspec.inspect.type_info(kind)
    for part in path:
        info = _descend(info, part)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else [info]
    return [str(value) for one in members if isinstance(one, msgspec.inspect.LiteralType) for value in one.values]


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
    """Note the place and the text of all keys below ``node``; refuse what is no plain document."""
    if len(document.places) > _MAX_NODES:  # aliases of aliases: a small text that unfolds to billions of values
        raise InputError(f"{document.origin}: more than {_MAX_NODES} values", hint="remove the nested aliases (*name)")
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = _key(key_node, path, document), key_node.start_mark.line + 1
            inner: Path_ = (*path, key)
            if key in seen and key != "<<":
                raise InputError(
                    f"{document.origin}:{line}: {dotted(inner)} stands twice, first on line {seen[key]}",
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
    elif node.tag != "tag:yaml.org,2002:str":
        document.texts[path] = node.value


def _key(node: yaml.Node, path: Path_, document: Document) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
        return str(node.value)
    written = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
    raise InputError(
        f"{document.origin}:{node.start_mark.line + 1}: {dotted((*path, str(written)))}: a key must be text",
        hint=f'quote it: "{written}"' if isinstance(node, yaml.ScalarNode) else "write `key: value`",
    )


def merge(base: Document, over: Document) -> Document:
    """Return ``base`` with ``over`` on top: mappings are merged, everything else is replaced."""
    return Document(
        _merged(base.data, over.data),
        {**base.places, **over.places},
        over.origin,
        {**base.texts, **over.texts},
    )


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result


def dotted(path: Path_) -> str:
    """Return a path of keys as people write it: ``steps[0].env.X``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _yaml_error(error: yaml.YAMLError, origin: str, what: str) -> InputError:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    problem = error.problem or error.context if isinstance(error, yaml.MarkedYAMLError) else str(error).splitlines()[0]
    hints = {
        "cannot start any token": "indent with spaces, not tabs; quote a value that begins with @, ` or %",
        "mapping values are not allowed": "quote a value that holds `: `, and check the indentation",
        "control characters are not allowed": "is this a text file?",
        "exceeded maximum nesting depth": "write it flat",
        "could not determine a constructor": "write plain values; tags (!name) are not read",
        "a number of": "quote it if it is text",
        " is no ": "write a value that fits the tag (!!name), or leave the tag out",
    }
    hint = next((text for part, text in hints.items() if part in str(problem)), f"the {what} must be YAML")
    where = origin if mark is None or what == _OF_OPTION else f"{origin}:{mark.line + 1}"
    return InputError(f"{where}: {problem}", hint=hint)


def _near_files(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f"the folder {path.parent} cannot be read either"
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"near it: {', '.join(near)}" if near else "check the path"

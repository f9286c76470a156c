"""From YAML text to a document: what is no plain mapping of keys to values is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from hpcjob.documents.coreyaml import CoreLoader
from hpcjob.documents.document import Document, KeyPath, dotted
from hpcjob.errors import InputError
from hpcjob.regular import read_regular
from neoxlite.common.near import near

MAX_BYTES = 1_000_000
_MAX_NODES = 50_000
_VALUE = "value"  # what a lone value is called while it is read
_HINTS = {
    "cannot start any token": "indent with spaces, not tabs; quote a value that begins with @, ` or %",
    "mapping values are not allowed": "quote a value that holds `: `, and check the indentation",
    "control characters are not allowed": "is this a text file?",
    "exceeded maximum nesting depth": "write it flat",
    "could not determine a constructor": "write plain values; tags (!name) are not read",
    "unexpected end of stream": "close the quote that is open above it",
    "undefined alias": "quote a value that begins with *",
    "did not find expected": "close the bracket or quote that is open above it, and check the indentation",
    "a number of": "quote it if it is text",
    " is not of type ": "write a value that fits the tag (!!name), or omit the tag",
}


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
        raise _refusal(error, origin, what) from None
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"{origin}: {error}", hint=f"the {what} must be plain YAML") from None
    except RecursionError:
        raise InputError(f"{origin}: nested too deeply", hint="has an alias (*name) a place in itself?") from None
    if not isinstance(document.data, dict):
        raise InputError(f"{origin}: the {what} is not a mapping of keys to values", hint="write `key: value` lines")
    return document


def parse_value(text: str, place: str) -> tuple[Any, dict[KeyPath, str]]:
    """Return the YAML value that ``text`` spells, and the text of each scalar in it, by its path.

    Args:
        place: the option that gave it, for errors.

    Raises:
        InputError: it is no YAML, or not one value.
    """
    document = parse(f"{_VALUE}: {text}" if "\n" not in text else f"{_VALUE}: {json.dumps(text)}", place, _VALUE)
    if list(document.data) != [_VALUE]:
        raise InputError(f"{place}: {text!r} is not one YAML value", hint="quote it, for the shell and for YAML")
    return document.data[_VALUE], {path[1:]: written for path, written in document.texts.items()}


def _mark(node: yaml.Node, path: KeyPath, document: Document) -> None:
    """Note the place and the text of all keys below ``node``; refuse what is no plain document."""
    if len(document.places) > _MAX_NODES:  # aliases of aliases: a small text that unfolds to billions of values
        raise InputError(f"{document.origin}: more than {_MAX_NODES} values", hint="remove the nested aliases (*name)")
    if isinstance(node, yaml.MappingNode):
        _mark_mapping(node, path, document)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            inner = (*path, index)
            document.places[inner] = f"{document.origin}:{item.start_mark.line + 1}"
            _mark(item, inner, document)
    elif node.tag != "tag:yaml.org,2002:str":
        document.texts[path] = node.value


def _mark_mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> None:
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        key, line = _key(key_node, path, document), key_node.start_mark.line + 1
        inner: KeyPath = (*path, key)
        if key in seen and key != "<<":
            raise InputError(
                f"{document.origin}:{line}: {dotted(inner)} stands twice, first on line {seen[key]}",
                hint="remove one of them",
            )
        seen[key] = line
        document.places[inner] = f"{document.origin}:{line}"
        _mark(value_node, inner, document)


def _key(node: yaml.Node, path: KeyPath, document: Document) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
        return str(node.value)
    written = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
    raise InputError(
        f"{document.origin}:{node.start_mark.line + 1}: {dotted((*path, str(written)))}: a key must be text",
        hint=f'quote it: "{written}"' if isinstance(node, yaml.ScalarNode) else "write `key: value`",
    )


def _refusal(error: yaml.YAMLError, origin: str, what: str) -> InputError:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    problem = error.problem or error.context if isinstance(error, yaml.MarkedYAMLError) else str(error).splitlines()[0]
    hint = next((text for part, text in _HINTS.items() if part in str(problem)), f"the {what} must be YAML")
    where = origin if mark is None or what == _VALUE else f"{origin}:{mark.line + 1}"
    return InputError(f"{where}: {problem}", hint=hint)


def _near_files(path: Path) -> str:
    try:
        names = {other.stem: other.name for other in path.parent.iterdir()}
    except FileNotFoundError:
        return f"the folder {path.parent} does not exist either"
    except OSError as error:
        return f"the folder {path.parent} cannot be read either: {error.strerror}"
    found = [names[like] for like in near(path.stem, names)]
    return f"near it: {', '.join(found)}" if found else "check the path"

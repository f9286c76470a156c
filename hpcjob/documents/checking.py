"""From a document to a typed value: what does not fit is told with its place, its key and what would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from hpcjob.documents.document import Document, KeyPath, dotted
from hpcjob.documents.places import at
from hpcjob.documents.writing import one_line
from hpcjob.errors import InputError
from neoxlite.common.near import did_you_mean

T = TypeVar("T", bound=msgspec.Struct)

_SCHEMAS = ("job file", "profile")
_OTHER = {"configuration": "write `profile: NAME`, `mail_to: ADDRESS`, `accounts: {PROFILE: GROUP}`"}
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.+?)`")
_NOT_TAKEN = re.compile(r"Invalid enum value (.+)")
_GOT = re.compile(r", got .*")
_AT = re.compile(r" - at `(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")  # `[...]`, some value of a mapping, says nothing

_WORK = ("train", "command", "steps")
_KEYS_SHOWN = 3
_NOT_THERE = object()
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping of keys to values",
    "null": "nothing",
}
_OTHERS = {msgspec.inspect.IntType: "int", msgspec.inspect.FloatType: "float", msgspec.inspect.BoolType: "bool"}
# What msgspec says of a shape, and what people say.
_SHAPES = {
    "text matching regex '^[A-Za-z_]": "a name of letters, digits and _, no digit first",
    "text matching regex '^[0-9]": "a version such as 12.4",
}
_MISSING = re.compile(r"[Oo]bject missing required field `(.+?)`")
_TYPE = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")


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
    path: KeyPath = ()
    if found_at := _AT.search(message):
        message = message[: found_at.start()]
        path = tuple(step[1] or int(step[2]) for step in _STEP.finditer(found_at[1].removeprefix("$")))
    if unknown := _UNKNOWN_FIELD.match(message):
        return _unknown_key(document, kind, what, (*path, unknown[1]))
    words = in_words(message)
    if (wrong := _NOT_TAKEN.match(message)) and (taken := _taken(kind, path)):
        words = f"{wrong[1]} is not {taken}"
    elif (found := _shown(document, path)) is not None:
        words = f"{_GOT.sub('', words)}, got {found}"
    where = at(document.place(path), dotted(path) or what)
    hint = (
        f"`hpcjob schema {what.split()[0]}` prints all keys and their types" if what in _SCHEMAS else _OTHER.get(what)
    )
    if path == ("schema",):
        hint = "this hpcjob reads schema 1; a later one needs a later hpcjob"
    better = (
        _as_list(document, path, words) or _quoted(document, path, words) or _as_mapping(document, kind, path, words)
    )
    return InputError(f"{where}: {words}", hint=better or hint)


def _quoted(document: Document, path: KeyPath, words: str) -> str | None:
    """Return how a number, or true or false, would stand where text is wanted."""
    value = _value(document, path)
    if not words.startswith("expected text") or not isinstance(value, (bool, int, float)):
        return None
    text = f'"{document.texts.get(path, value)}"'
    if document.place(path).startswith("--set "):
        return f"put it in quotes: --set '{dotted(path)}={text}'"
    return f"put it in quotes: {text}" if isinstance(path[-1], int) else f"put it in quotes: {path[-1]}: {text}"


def _as_list(document: Document, path: KeyPath, words: str) -> str | None:
    """Return how a text would stand where a list is wanted: what people write in a command's place."""
    value = _value(document, path)
    if not words.startswith("expected a list") or not isinstance(value, str):
        return None
    import shlex

    try:
        parts = shlex.split(value)
    except ValueError:
        parts = [value]
    return f"write a list: {path[-1]}: {one_line(parts)}" if parts else None


def _as_mapping(document: Document, kind: type[msgspec.Struct], path: KeyPath, words: str) -> str | None:
    """Return how a value would stand where a mapping is wanted: below the first of its keys that takes the value."""
    value = _value(document, path)
    if not words.startswith(f"expected {_TYPES['object']}") or value is None or not isinstance(path[-1], str):
        return None
    info = _type_at(kind, path)
    if isinstance(info, msgspec.inspect.DictType):
        return f"write {_set_to(document, path, '{NAME: VALUE}')}"
    ways = [way for struct in _structs(info) for way in _ways(struct, value)]
    if not ways:
        return None
    key, others = ways[0][0], [name for name, _ in ways[1:]]
    told = f"write {_set_to(document, path, f'{{{key}: {one_line(ways[0][1])}}}')}"
    return f"{told}, or {', '.join(others)} in place of {key}" if 0 < len(others) <= _KEYS_SHOWN else told


def _ways(struct: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key of a mapping that takes ``value`` without any other key, and what it takes: a list of it, too."""
    for field in struct.fields:
        for taken in (value, [value]):
            try:
                msgspec.convert({field.encode_name: taken}, struct.cls, strict=True)
            except msgspec.ValidationError:
                continue
            yield field.encode_name, taken
            break


def _set_to(document: Document, path: KeyPath, text: str) -> str:
    """Return how the key at ``path`` is set to the YAML ``text`` where it was set: by an option, or in a file."""
    _, is_option, name = document.place(path).partition("--set ")
    return f"--set '{name}={text}'" if is_option else f"{path[-1]}: {text}"


def in_words(message: str) -> str:
    """Return what msgspec says of a value without the words of its types: ``expected a whole number >= 1``."""
    words = _TYPE.sub(lambda match: _kinds(match[1]), message).replace("of length >= 1", "that is not empty")
    words = _MISSING.sub(r"`\1` is missing", words)
    for shape, said in _SHAPES.items():
        before, found, _ = words.partition(shape)
        words = f"{before}{said}" if found else words
    return f"{words[0].lower()}{words[1:]}"


def _kinds(text: str) -> str:
    """Return ``int | str | null`` as people say it; that a key may be left out is no help where it is wrong."""
    names = text.split(" | ")
    kinds = [_TYPES.get(name, f"`{name}`") for name in names if name != "null" or len(names) == 1]
    return " or ".join(kinds)


def _unknown_key(document: Document, kind: type[msgspec.Struct], what: str, path: KeyPath) -> InputError:
    known = _field_names(kind, path[:-1])
    other = getattr(kind, "OTHER_WORDS", {}).get(path[0]) if len(path) == 1 else None
    hint = did_you_mean(str(path[-1]), known) or f"known keys: {', '.join(sorted(known))}"
    if other is not None:
        hint = f"here it is {other}"
    elif what == "job file" and (of_trainer := _key_of_trainer(document, path)):
        hint = of_trainer
    return InputError(f"{document.place(path)}: {what} has no key {dotted(path)!r}", hint=hint)


def _key_of_trainer(document: Document, path: KeyPath) -> str | None:
    """Return where a key of the training configuration goes in a job that trains; None: it is none, or none trains."""
    from neoxlite.config.keys import key_table, old_key_table

    steps = document.data.get("steps")
    works = {
        "": document.data,
        **({f"steps.{n}.": one for n, one in enumerate(steps)} if isinstance(steps, list) else {}),
    }
    above = next(
        (key for key, one in works.items() if isinstance(one, dict) and isinstance(one.get("train"), dict)), None
    )
    name = str(path[-1]).replace("-", "_")
    option = document.place(path).partition("--set ")[2]
    if len(path) > 1 or not (name in key_table() or name in old_key_table()):
        return None
    if above is None:
        if option or not document.data.keys().isdisjoint(_WORK):
            return None
        file = document.place(path).rpartition(":")[0] or document.origin
        return f"a configuration of the training is not a job file, which names it: train: {{configs: [{file}]}}"
    told = f"--set {above}train.set.{option}=VALUE" if option else f"it goes below {above}train.set"
    return f"a key of the training configuration: {told}"


def _shown(document: Document, path: KeyPath) -> str | None:
    """Return the value at ``path`` as the message shows it; None for what holds others, or is not there."""
    value = _value(document, path)
    if value is _NOT_THERE or isinstance(value, (dict, list)):
        return None
    text = "nothing" if value is None else repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _value(document: Document, path: KeyPath) -> Any:
    value: Any = document.data
    try:
        for part in path:
            value = value[part]
    except (KeyError, IndexError, TypeError):
        return _NOT_THERE
    return value


def _field_names(kind: Any, path: KeyPath) -> list[str]:
    return [field.encode_name for struct in _structs(_type_at(kind, path)) for field in struct.fields]


def _taken(kind: Any, path: KeyPath) -> str:
    """Return what a key takes that has some words of its own, in words; empty: it has none."""
    info = _type_at(kind, path)
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else [info]
    words = [str(value) for one in members if isinstance(one, msgspec.inspect.LiteralType) for value in one.values]
    others = [_TYPES[name] for one in members if (name := _OTHERS.get(type(one)))]
    if words and others:
        return f"{' or '.join(others)} or {', '.join(words)}"
    return f"one of {', '.join(words)}" if len(words) > 1 else "".join(words)


def _type_at(kind: Any, path: KeyPath) -> Any:
    info = msgspec.inspect.type_info(kind)
    for part in path:
        info = _descend(info, part)
    return info


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

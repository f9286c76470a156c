"""A mapping of keys to values, with the place that gave each: a line of a file, or an option."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hpcjob.errors import InputError

KeyPath = tuple[str | int, ...]


class Document(msgspec.Struct):
    """A mapping read from a file or given on the command line, with the place of each key.

    Attributes:
        data: the mapping, as YAML gave it.
        places: path of keys -> "file:line" or the option that set it.
        origin: the file's name, or where the document comes from.
        texts: path of each scalar -> its text as written, where `data` holds a number or a boolean made from it.
    """

    data: dict[str, Any]
    places: dict[KeyPath, str] = {}
    origin: str = "<none>"
    texts: dict[KeyPath, str] = {}

    def place(self, path: KeyPath) -> str:
        """Return where ``path``, something in it, or its nearest known parent was set."""
        for length in range(len(path), 0, -1):
            for known, place in self.places.items():
                if known[:length] == path[:length]:
                    return place
        return self.origin

    def part(self, key: str) -> Document:
        """Return the document of one key alone, with its places: what is read of a file before the rest of it."""
        return Document({key: self.data.get(key)}, self.places, self.origin, self.texts)

    def set(self, path: str | KeyPath, value: Any, place: str, texts: Mapping[KeyPath, str] | None = None) -> None:
        """Set ``a.b.c`` to ``value``; mappings on the way are made, ``steps.0`` is the first item of a list.

        Args:
            place: the option, for errors.
            texts: the text as written of each scalar in ``value``, by its path in it.

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
        for known in [known for known in self.places if known[: len(where)] == where]:
            del self.places[known]
        self.texts.update({(*where, *inner): text for inner, text in (texts or {}).items()})
        self.places[where] = place

    def keep_text(self, path: KeyPath) -> dict[str, Any]:
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


def _parts(path: str | KeyPath, place: str) -> KeyPath:
    if not isinstance(path, str):
        return path
    parts = tuple(path.split("."))
    if not all(parts):
        raise InputError(f"{place}: {path!r} is not a path of keys", hint="write for example train.set.train_iters=10")
    return parts


def _key_in(target: Any, part: str | int, above: Sequence[str | int], place: str) -> str | int:
    if isinstance(target, dict):
        return part
    if isinstance(target, list) and str(part).isdecimal() and int(part) < len(target):
        return int(part)
    shown = repr(target) if len(repr(target)) < 60 else f"{repr(target)[:57]}..."
    raise InputError(
        f"{place}: {dotted(tuple(above))} is {shown}, it holds no key {part!r}",
        hint="give the whole value instead, or fix the path",
    )


def merge(base: Document, over: Document) -> Document:
    """Return ``base`` with ``over`` on top: mappings are merged, everything else is replaced."""
    replaced = {path for path in over.places if not isinstance(_at(over.data, path), dict)}
    kept = {path: place for path, place in base.places.items() if not _below(path, replaced)}
    return Document(
        _merged(base.data, over.data),
        {**kept, **over.places},
        over.origin,
        {**base.texts, **over.texts},
    )


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _below(path: KeyPath, others: Collection[KeyPath]) -> bool:
    return any(path[:length] in others for length in range(1, len(path)))


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result


def dotted(path: KeyPath) -> str:
    """Return a path of keys as people write it: ``steps[0].env.X``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def leaves(values: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted key and value of what stands in nested mappings: ``optimizer.params.lr``."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value

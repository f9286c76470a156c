"""Variables in files: they are text, whatever YAML takes them for."""

from __future__ import annotations

from hpcjob.documents.document import Document, KeyPath, dotted
from hpcjob.documents.places import at
from hpcjob.errors import InputError
from hpcjob.job import ENV_NAME, ENV_NAME_HINT


def keep_env(document: Document) -> None:
    """Make the values of ``env``, also those of steps, the text that was written: ``1.10`` stays ``1.10``.

    Raises:
        InputError: a value is no text, number or boolean, or a name cannot be one of a variable.
    """
    steps = document.data.get("steps")
    paths: list[KeyPath] = [("env",)]
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        if isinstance(step, dict):
            paths.append(("steps", index, "env"))
    for path in paths:
        for name, value in document.keep_text(path).items():
            _check(document, path, name, value)


def _check(document: Document, path: KeyPath, name: str, value: object) -> None:
    place, key = document.place((*path, name)), dotted((*path, name))
    if not ENV_NAME.fullmatch(name):
        raise InputError(f"{place}: {dotted(path)}: {name!r} is not a name of a variable", hint=ENV_NAME_HINT)
    if not isinstance(value, str):
        raise InputError(f"{at(place, key)}: expected text, got {value!r}", hint="write one value, quoted if need be")

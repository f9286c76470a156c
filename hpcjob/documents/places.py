"""Where each value of a job was given, kept after its document is gone: a refusal that comes later names it too.

A refusal of a value begins with its key (``walltime: ...``); the place goes before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from hpcjob.documents.document import Document, dotted
from hpcjob.errors import InputError

Places = Mapping[str, str]  # dotted key -> "file:line" or option; "": the document itself

_KEY = re.compile(r"([a-z_]+)(?:\.[^\s.:\[]+|\[\d+\])*(?=(?:, [a-z_]+)*: )")
_LAST_PART = re.compile(r"(?:\.[^.\[]+|\[\d+\]|^[^.\[]+)$")


def places_of(document: Document) -> dict[str, str]:
    """Return the place of each key of ``document``, and of each mapping that holds one."""
    found = {"": document.origin}
    for path, place in document.places.items():
        for length in range(1, len(path)):
            found.setdefault(dotted(path[:length]), place)
        found[dotted(path)] = place
    return found


@contextmanager
def placed(places: Places, keys: Collection[str]) -> Iterator[None]:
    """Put the place before an InputError about one of ``keys``; of a key that is not set it is the document's own.

    Raises:
        InputError: the one that was raised inside.
    """
    try:
        yield
    except InputError as error:
        key = _KEY.match(error.message)
        if places and key and key[1] in keys:
            error.message = f"{at(_nearest(places, key[0]), key[0])}{error.message.removeprefix(key[0])}"
        raise


def at(place: str, key: str) -> str:
    """Return place and key for a message; an option that bears the key's name says both."""
    is_same = place.startswith("--") and place.split()[-1].lstrip("-").replace("-", "_") == key
    return place if is_same else f"{place}: {key}"


def _nearest(places: Places, key: str) -> str:
    while key not in places:
        key = _LAST_PART.sub("", key)
    return places[key]

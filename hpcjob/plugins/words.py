"""A refusal in the words of who gave parameters: keys of a job file become the names of parameters again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hpcjob.errors import InputError

_PATH = r"(?:\.[^\s.:'\[]+|\[\d+\])*"
_FIRST = re.compile(rf"(?:(?P<place>\w+): )?(?P<key>[a-z_]+)(?P<path>{_PATH}): ")
_UNKNOWN = re.compile(rf"(?P<place>\w+): job has no key '(?P<key>[a-z_]+)(?P<path>{_PATH})'")
_MENTIONS = (
    re.compile(r"--(?P<key>[a-z]+)(?: [A-Z]+)?, `[a-z]+:`(?: in the job file,)?(?= or )"),
    re.compile(r"--set (?P<key>[a-z_]+)(?==)"),
    re.compile(r"`(?P<key>[a-z_]+):?`"),
    re.compile(r"(?<=remove )(?P<key>[a-z_]+)(?= from)"),
    re.compile(r"(?<![\w.])(?P<key>[a-z]+(?:_[a-z]+)+)(?!\w)"),  # no word of English
)
_VARIABLE = re.compile(r"--env (\w+)=(\w+)")


@contextmanager
def in_parameters(names: Mapping[str, str]) -> Iterator[None]:
    """Tell what is refused inside by the names of parameters.

    Args:
        names: key of a job file -> the parameter that sets it.

    Raises:
        InputError: the one that was raised inside.
    """
    try:
        yield
    except InputError as error:
        error.message = _message(error.message, names)
        error.hint = error.hint and with_parameters(error.hint, names)
        raise


def _message(text: str, names: Mapping[str, str]) -> str:
    if unknown := _UNKNOWN.match(text):
        return f"{unknown['place']}: there is no {_named(unknown, names)}"
    first = _FIRST.match(text)
    if first is None or first["key"] not in names or first["place"] not in (None, names[first["key"]]):
        return with_parameters(text, names)
    return f"{_named(first, names)}: {with_parameters(text[first.end() :], names)}"


def _named(match: re.Match[str], names: Mapping[str, str]) -> str:
    return f"{names.get(match['key'], match['key'])}{match['path']}"


def with_parameters(text: str, names: Mapping[str, str]) -> str:
    """Return a hint or a note with the names of parameters in the place of keys and options."""
    for pattern in _MENTIONS:
        text = pattern.sub(lambda match: names.get(match["key"], match[0]), text)
    return _VARIABLE.sub(lambda match: f"{names['env']}={{{match[1]!r}: {match[2]!r}}}", text)

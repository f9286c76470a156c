"""``{array.index}`` and ``{array.value}`` in the words of a job: what they stand for is known when an element runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hpcjob.arrays import Array
from hpcjob.documents.reading import parse_value
from hpcjob.errors import InputError
from hpcjob.quoting import ScriptText, sh, sh_path

_NAME = re.compile(r"\{array\.(\w*)\}")
_VARIABLES: Mapping[str, str] = {"index": "array_index", "value": "array_value"}
_PLAIN = re.compile(r"[\w.+/=~-][\w.+/=~: -]*", re.ASCII)


def element_word(text: str, array: Array | None, key: str, *, is_path: bool = False) -> str | ScriptText:
    """Return ``text`` as it is, or, if it names the element's index or value, as shell text that puts them in.

    Args:
        is_path: whether a leading ``~/`` is the home folder.

    Raises:
        InputError: there is no such name, or the job is no array.
    """
    parts = _NAME.split(text)
    if len(parts) == 1:
        return text
    for name in parts[1::2]:
        if name not in _VARIABLES:
            raise InputError(f"{key}: there is no {{array.{name}}}", hint="write {array.index} or {array.value}")
        if array is None:
            raise InputError(f"{key}: {{array.{name}}}, and the job has no `array`", hint="add array: 0-9")
    words = [f'"${_VARIABLES[part]}"' if number % 2 else part and sh(part, key) for number, part in enumerate(parts)]
    if is_path and parts[0]:
        words[0] = sh_path(parts[0], key)
    return ScriptText("".join(words))


def in_yaml(value: Any, array: Array | None, key: str) -> str | None:
    """Return the text of a YAML value that is all placeholder, to be read as what it turns into; None of any other.

    Raises:
        InputError: a value of the array would not be read as one plain value there.
    """
    if not isinstance(value, str) or _NAME.search(value) is None:
        return None
    whole = _NAME.fullmatch(value)
    for text in array.values or () if array is not None and "{array.value}" in value else ():
        if not _PLAIN.fullmatch(text) or ": " in text or text.endswith(":"):
            raise InputError(
                f"{key}: the value {text!r} of the array is not a plain YAML value",
                hint="use the values in `command` or `env`, where any text may stand",
            )
    return value if whole else None


def of_element(value: Any, array: Array, index: int) -> Any:
    """Return ``value``, and what is in it, as the element with that index has it; what is all placeholder as YAML."""
    if isinstance(value, dict):
        return {key: of_element(inner, array, index) for key, inner in value.items()}
    if isinstance(value, list):
        return [of_element(inner, array, index) for inner in value]
    if not isinstance(value, str) or _NAME.search(value) is None:
        return value
    texts = {"index": str(index), "value": array.value(index)}
    text = _NAME.sub(lambda match: texts.get(match[1], match[0]), value)
    return parse_value(text, "array")[0] if _NAME.fullmatch(value) else text

"""Values of keys: checked against the declared type, and read as that type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from neoxlite.config.keys import Key
from neoxlite.errors import ConfigError

# YAML 1.1, which GPT-NeoX files are read as, takes 1e-5 (no dot) for a string; YAML 1.2 and everyone else for a number.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_EXPONENT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d+")

_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")

_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "number": "a number",
    "bool": "true or false",
    "str": "a text",
    "dict": "a mapping (key: value pairs)",
    "list": "a list",
}


def shown(value: Any, width: int = 60) -> str:
    """Return ``value`` much as YAML would show it, on one line cut to ``width`` characters, for messages."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if _is_huge(value):
        return "a number beyond all use"
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def plain(key: str) -> str:
    """Return a key as it is written, quoted and cut where it would spoil a message."""
    return key if key.isprintable() and 0 < len(key) <= 60 else shown(key)


def _is_huge(value: Any) -> bool:
    """Tell whether a number does not fit in 64 bits, which no setting needs and other libraries refuse."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _is_storable(value: Any) -> bool:
    """Tell whether all texts in ``value`` can be written as UTF-8, and named to the operating system."""
    if isinstance(value, str):
        return not _UNSTORABLE.search(value)
    if isinstance(value, dict):
        return all(_is_storable(key) and _is_storable(item) for key, item in value.items())
    return not isinstance(value, list) or all(map(_is_storable, value))


def _kind(value: Any) -> str:
    """Return what a value of the wrong type is, for a message: a number that is none is said to be so."""
    no_number = _is_huge(value) or (isinstance(value, float) and not math.isfinite(value))
    return shown(value) if no_number else f"{type_name(value)} ({shown(value)})"


def type_name(value: Any) -> str:
    """Return what kind of thing a YAML value is, in a user's words."""
    kinds: dict[type, str] = {
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        dict: "a mapping",
        list: "a list",
        type(None): "null",
    }
    return kinds.get(type(value), type(value).__name__)


def as_number(value: Any) -> int | float | None:
    """Return a number, also from a text that is one (``"1e-5"``), or None. Infinite and NaN values are none."""
    if isinstance(value, bool) or _is_huge(value):
        return None
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def is_beta(value: Any) -> bool:
    """Tell whether a value can be one of Adam's betas."""
    number = as_number(value)
    return number is not None and 0 <= number < 1


def numbers_in(value: Any) -> Any:
    """Return ``value`` with every text like ``1e-5`` inside mappings and lists read as the number it means."""
    if isinstance(value, dict):
        return {key: numbers_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers_in(item) for item in value]
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) >= 1 else number
    return value


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and not _is_huge(value) else None


def _float(value: Any) -> float | None:
    number = as_number(value)
    return None if number is None else float(number)


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


def _dict(value: Any) -> dict[Any, Any] | None:
    return numbers_in(value) if isinstance(value, dict) else None


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "number": as_number,
    "bool": _exactly(bool),
    "str": _exactly(str),
    "dict": _dict,
    "list": _exactly(list),
}


def typed(key: Key, value: Any, where: str) -> Any:
    """Return ``value`` as the type ``key`` declares.

    As in GPT-NeoX null is always accepted, a whole number is accepted for a float, true/false never for a number or the
    reverse, and the words of a choice compare without case. Unlike there, ``1e-5`` is accepted for a float.

    Raises:
        ConfigError: another type, or beyond the key's range; the message begins with ``where`` (file and line).
    """
    if not _is_storable(value):
        raise ConfigError(
            f"{where}: {key.name} has a character that no file and no file name can hold: {shown(value)}",
            hint="remove it: a NUL, or half of a surrogate pair",
        )
    if value is None or key.type == "any":
        return value
    if key.type == "choice":
        return _choice(key, value, where)
    result = _READERS[key.type](value)
    if result is None:
        raise ConfigError(
            f"{where}: {key.name} must be {_NAMES[key.type]}, not {_kind(value)}",
            hint=_type_hint(key, value),
        )
    if key.range is not None and result not in key.range:
        raise ConfigError(
            f"{where}: {key.name} is {shown(value)}; it must be {key.range.words}",
            hint=f"{key.name}: {key.description}",
        )
    return result


def _choice(key: Key, value: Any, where: str) -> str:
    for choice in key.choices:
        if isinstance(value, str) and value.lower() == choice.lower():
            return choice
    raise ConfigError(
        f"{where}: {key.name}: {shown(value)} is not one of its values", hint=f"use one of: {', '.join(key.choices)}"
    )


def _type_hint(key: Key, value: Any) -> str:
    number = as_number(value)
    if value == "None":
        return f"write {key.name}: null"
    if number is None and isinstance(value, str) and as_number(value.replace("_", "-")) is not None:
        return f"write {key.name}: {value.replace('_', '-')}"
    if key.type == "int" and number is not None and float(number).is_integer():
        return f"write {key.name}: {int(number)}" + (" (without quotes)" if isinstance(value, str) else "")
    if key.type == "bool" and isinstance(value, str | int) and str(value).lower() in ("true", "false", "0", "1"):
        return f"write {key.name}: {'true' if str(value).lower() in ('true', '1') else 'false'} (without quotes)"
    if key.name == "attention_config" and isinstance(value, str):
        return f'write {key.name}: [[["{value}"], "all"]]'
    if key.type == "list":
        return f"write {key.name}: [{value}]" if isinstance(value, str | int | float) else f"{key.name} takes a list"
    if key.type == "dict":
        return f"{key.name} takes lines of 'name: value', indented below it"
    if key.type == "str":
        return _text_hint(key, value)
    return f"{key.name}: {key.description}"


def _text_hint(key: Key, value: Any) -> str:
    if not isinstance(value, list | dict):
        return f'put the value in quotes: {key.name}: "{value}"'
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return f"write {key.name}: {value[0]}"
    if isinstance(value, list) and value and all(as_number(item) is not None for item in value):
        return f'write {key.name}: "{", ".join(map(str, value))}"'
    return f"{key.name}: {key.description}"

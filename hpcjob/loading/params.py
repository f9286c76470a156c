"""``params:`` of a job file: typed values that a submission gives, put in where ``{params.NAME}`` stands."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document, KeyPath, dotted
from hpcjob.documents.places import at
from hpcjob.errors import InputError
from hpcjob.home import expanded
from hpcjob.job import EnvName, Param, Scalar
from neoxlite.common.near import did_you_mean
from neoxlite.common.paths import exists

_NAME = re.compile(r"\{params\.([^{}]*)\}")
# What people leave in a template for the next one to fill in: refused before it costs hours in a queue.
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\?{2,}|x{3,}|(?:fix|change|replace|fill)[-_ ]?(?:me|this|in)|to[-_ ]?do|tbd|your[-_ ].*", re.IGNORECASE
)
# Where a value that is a number stays one; elsewhere it is text.
_TYPED = {
    *("nodes", "gpus_per_node", "procs_per_node", "cpus_per_gpu", "memory", "walltime", "stop_before_s", "array_limit"),
}

_Values = dict[str, tuple[Scalar, str]]  # name -> value, and its text as it was written


class _Declared(msgspec.Struct, frozen=True):
    params: dict[EnvName, Param | Scalar] | None = None


def fill(document: Document) -> list[str]:
    """Put the parameters' values into ``document``, everywhere but in ``params`` and ``sweep``.

    Returns:
        Notes: parameters that nothing uses.

    Raises:
        InputError: a value is missing, is a placeholder or of another type, or a name is not declared.
    """
    declared = convert(document.part("params"), _Declared, "job file").params or {}
    values = {name: _value(document, name, param) for name, param in declared.items()}
    used: set[str] = set()
    for key, value in list(document.data.items()):
        if key not in ("params", "sweep"):
            document.data[key] = _filled(value, (key,), document, values, used)
    return [f"params.{name} is not used; write {{params.{name}}} where it is needed" for name in values.keys() - used]


def _value(document: Document, name: str, param: Param | Scalar) -> tuple[Scalar, str]:
    """Return a parameter's value, and its text as it was written."""
    path: KeyPath = ("params", name)
    if not isinstance(param, Param):
        param, inner = Param(type="text" if isinstance(param, str) else _type_of(param), default=param), path
    else:
        inner = (*path, "default" if param.value is None else "value")
    value = param.default if param.value is None else param.value
    where = at(document.place(inner), f"params.{name}")
    about = f" ({param.help})" if param.help else ""
    hint = f"--set params.{name}=VALUE, of type {param.type}"
    if value is None:
        raise InputError(f"{where}: no value given{about}", hint=hint)
    text = document.texts.get(inner, str(value) if isinstance(value, str) else repr(value))
    if _PLACEHOLDER.fullmatch(text.strip()) or not text.strip():
        raise InputError(f"{where}: {text!r} is a placeholder{about}", hint=hint)
    typed = _typed(value, text, param)
    if typed is None:
        raise InputError(f"{where}: {text!r} is not of type {param.type}{about}", hint=hint)
    value = typed
    if param.type == "path" and not exists(expanded(text)):
        raise InputError(f"{where}: {text} does not exist here{about}", hint="give a path that exists")
    if param.choices and value not in param.choices:
        raise InputError(
            f"{where}: {text} is not one of its choices{about}",
            hint=f"choose one of {', '.join(map(str, param.choices))}",
        )
    return value, text


def _type_of(value: Scalar) -> Any:
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "text")


def _typed(value: Scalar, text: str, param: Param) -> Scalar | None:
    """Return the value as its type, None if it is none of it."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if param.type in ("text", "path"):
        return text
    if param.type == "bool":
        return value if isinstance(value, bool) else None
    if param.type == "int":
        return value if number and isinstance(value, int) else None
    return float(value) if number else None


def _filled(value: Any, path: KeyPath, document: Document, values: _Values, used: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, (*path, key), document, values, used) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, (*path, number), document, values, used) for number, inner in enumerate(value)]
    if not isinstance(value, str) or not (names := _NAME.findall(value)):
        return value
    for name in names:
        if name not in values:
            known = did_you_mean(name, values, 2) or f"declared: {', '.join(values) or 'none'}"
            raise InputError(
                f"{document.place(path)}: {dotted(path)}: there is no parameter {name!r}",
                hint=f"{known} (add it under `params:`)",
            )
    used.update(names)
    whole = _NAME.fullmatch(value)
    if whole and ((len(path) == 1 and path[0] in _TYPED) or path[-3:-1] == ("train", "set") or "set" in path):
        return values[names[0]][0]
    return _NAME.sub(lambda match: values[match[1]][1], value)

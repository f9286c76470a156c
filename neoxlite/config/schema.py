"""JSON Schema of a configuration file, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from neoxlite.config.keys import Key, OldKey, Support, block_table, key_table, old_key_table
from neoxlite.config.reference import standing

_TYPES: dict[str, list[str]] = {
    "int": ["integer"],
    "float": ["number"],
    "number": ["number"],
    "bool": ["boolean"],
    "str": ["string"],
    "list": ["array"],
    "dict": ["object"],
}
# YAML 1.1 takes 1e-5 for a text; neoxlite reads it as the number it means.
_NUMBER_AS_TEXT = {"type": "string", "pattern": r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of one file; keys may be spelled with hyphens, as GPT-NeoX allows.

    A file may be a part of a configuration, so that no key is required.
    """
    properties = {name: _schema(key) for name, key in key_table().items()}
    properties |= {name: _old_schema(key) for name, key in old_key_table().items()}
    hyphens = {f"^{name.replace('_', '-')}$": {"$ref": f"#/properties/{name}"} for name in properties if "_" in name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "GPT-NeoX configuration",
        "type": "object",
        "properties": properties,
        "patternProperties": hyphens,
        "additionalProperties": False,
    }


def _schema(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": _description(key), "default": key.default}
    if key.type == "choice":
        schema["enum"] = [*key.choices, None]
    elif key.type in ("float", "number"):
        number = {"type": ["number", "null"], **(key.range.json_schema if key.range else {})}
        schema["anyOf"] = [number, _NUMBER_AS_TEXT]
    elif key.type != "any":
        schema["type"] = [*_TYPES[key.type], "null"]
        schema |= key.range.json_schema if key.range else {}
    inner = _inner(key.name)
    if inner:
        schema["properties"] = inner
    return schema


def _inner(block: str) -> dict[str, Any]:
    """Return the schemas of the keys directly inside ``block``, and of blocks in it."""
    rest = [name.removeprefix(f"{block}.") for name in block_table() if name.startswith(f"{block}.")]
    inner = {name: _schema(block_table()[f"{block}.{name}"]) for name in rest if "." not in name}
    for name in dict.fromkeys(name.partition(".")[0] for name in rest if "." in name):
        inner[name] = {"type": "object", "properties": _inner(f"{block}.{name}")}
    return inner


def _description(key: Key) -> str:
    if key.support is Support.USED and not key.accepts:
        return key.description
    return f"{key.description} [{standing(key)}]"


def _old_schema(key: OldKey) -> dict[str, Any]:
    return {"description": f"{key.description} [removed: {standing(key)}]", "deprecated": True}

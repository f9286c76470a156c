"""JSON Schema of job files and cluster profiles, made from the types that read them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from hpcjob.job import JobFile
from hpcjob.profile import ClusterProfile

_KINDS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "job": (JobFile, "hpcjob job file"),
    "profile": (ClusterProfile, "hpcjob cluster profile"),
}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_ATTRIBUTE = re.compile(r"^((?:\w+(?:, )?)+): (.*(?:\n .*)*)", re.MULTILINE)


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``kind``, ``job`` or ``profile``, with the descriptions of the keys.

    A profile that extends another may leave out what the other gives.
    """
    struct, title = _KINDS[kind]
    schema = msgspec.json.schema(struct)
    for definition in schema["$defs"].values():
        _describe(definition)
        if "env" in definition.get("properties", {}):
            # Numbers and booleans are read as the text they were written in.
            definition["properties"]["env"]["additionalProperties"] = {"type": ["string", "number", "boolean", "null"]}
    if kind == "job":
        schema["$defs"][struct.__name__]["properties"]["memory"]["anyOf"] = [{"type": "string"}, {"type": "null"}]
        _allow_params(schema)
    else:
        whole = schema["$defs"][struct.__name__]
        whole["anyOf"] = [{"required": ["extends"]}, {"required": ["title", "scheduler"]}]
        for definition in (whole, schema["$defs"]["Scheduler"]):
            del definition["required"]
    # Python's end of text is \\Z, the one of JSON Schema's expressions (ECMA-262) is $.
    text = msgspec.json.encode({"$schema": _DRAFT, "title": title, **schema}).replace(rb"\\Z", b"$")
    result: dict[str, Any] = msgspec.json.decode(text)
    return result


def _allow_params(node: Any) -> None:
    """Let ``{params.NAME}`` stand where one word of a list is wanted: what is read is the parameter's value."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _allow_params(child)
    if isinstance(node, dict) and "enum" in node and all(isinstance(word, str) for word in node["enum"]):
        node["anyOf"] = [{"enum": node.pop("enum")}, {"type": "string", "pattern": r"^\{params\.\w+\}$"}]


def _describe(definition: dict[str, Any]) -> None:
    """Move the lines of ``Attributes:`` in a type's docstring to the keys they describe."""
    text = inspect.cleandoc(definition.get("description", ""))
    head, _, attributes = text.partition("Attributes:\n")
    definition["description"] = " ".join(head.split())
    for names, meaning in _ATTRIBUTE.findall(inspect.cleandoc(attributes)):
        for name in names.split(", "):
            if name in definition.get("properties", {}):
                definition["properties"][name].setdefault("description", " ".join(meaning.split()))

"""Values given on the command line, on top of those of a file."""

from __future__ import annotations

from typing import Any

import msgspec

from hpcjob.documents.document import Document, KeyPath
from hpcjob.documents.reading import parse_value

_OF_PROFILE = "profile."


class Override(msgspec.Struct, frozen=True):
    """One value given on the command line.

    Attributes:
        path: keys, ``("env", "X")`` or ``train.set.train_iters``; ``profile.X`` is X of the profile.
        value: the value, or its YAML text.
        place: the option, for errors: ``--nodes``.
        is_yaml: whether ``value`` is YAML text.
    """

    path: str | KeyPath
    value: Any
    place: str
    is_yaml: bool = False

    @property
    def is_for_profile(self) -> bool:
        """Whether it changes the profile, not the job."""
        return isinstance(self.path, str) and self.path.startswith(_OF_PROFILE)

    def in_profile(self) -> Override:
        """Return it as the profile's document takes it."""
        return msgspec.structs.replace(self, path=str(self.path).removeprefix(_OF_PROFILE))

    def apply(self, document: Document) -> None:
        """Set the value in ``document``. Raises InputError where the path leads nowhere or the text is no YAML."""
        value, texts = parse_value(self.value, self.place) if self.is_yaml else (self.value, {})
        document.set(_value_of_param(self.path, document), value, self.place, texts)


def _value_of_param(path: str | KeyPath, document: Document) -> str | KeyPath:
    """Return where ``params.NAME`` is set: a declaration of several lines keeps them."""
    parts = tuple(path.split(".")) if isinstance(path, str) else path
    params = document.data.get("params")
    if len(parts) == 2 and parts[0] == "params" and isinstance(params, dict) and isinstance(params.get(parts[1]), dict):
        return (*parts, "value")
    return path

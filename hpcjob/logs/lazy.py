"""Regular expressions that are compiled when a line first needs them: compiling all there are takes longer than
reading the end of a log."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split", "pattern", "groupindex")


class _Lazy(Generic[AnyStr]):
    """Becomes the compiled pattern when one of its methods is asked for; from then on a call costs nothing more."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self._text, self._flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return self.__dict__[name]


def lazy(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what is used as ``re.compile(text, flags)`` is; a mistake in it shows at the first use."""
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))

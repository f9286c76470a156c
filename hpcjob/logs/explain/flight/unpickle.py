"""Plain data out of a pickle that nobody vouches for: dictionaries, lists, tuples, texts and numbers, nothing else.

A pickle may call any function of any module while it is read. Here none is called but those by which PyTorch's own
pickler writes lists of numbers, and these are replaced by ``list``.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

_LISTS = frozenset(("build_intlist", "build_doublelist", "build_boollist"))
_MODULE = "torch.jit._pickle"


def loads(data: bytes) -> Any:
    """Return the data of a pickle.

    Raises:
        ValueError: it is damaged, or holds anything but plain data.
    """
    try:
        return _Plain(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle ends in any of a dozen exceptions
        raise ValueError(str(error) or type(error).__name__) from error


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == _MODULE and name in _LISTS:
            return list
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])

    def persistent_load(self, identity: Any) -> Any:
        raise pickle.UnpicklingError("it refers to data outside of it")

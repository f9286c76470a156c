"""A file that a script was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hpcjob.regular import read_regular
from hpcjob.resources import label


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a plan was made from.

    Attributes:
        label: the file as a script names it, the same on every machine: the path as given, or
            ``hpcjob:cluster_profiles/abci3.yml`` if shipped.
        sha256: hexadecimal digest of its bytes, and of those of the files that it extends, in that order.
        path: the file itself.
    """

    label: str
    sha256: str
    path: Path

    @classmethod
    def of(cls, path: Path, extended: Iterable[Path] = ()) -> Source:
        """Return ``path``, which extends the files ``extended``, as a source. Raises OSError."""
        digest = hashlib.sha256(b"".join(map(read_regular, (path, *extended)))).hexdigest()
        return cls(label=label(path), sha256=digest, path=path)

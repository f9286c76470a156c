"""What to do with a document that cannot be read: stop, or leave it out and count it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from neoxlite.common.counting import counted
from neoxlite.errors import DataError

_LOG = logging.getLogger(__name__)
_SHOWN: Final = 10


@dataclass
class BadInput:
    """The policy, and what was left out under it.

    Attributes:
        skip: leave bad documents out; otherwise the first one ends the run.
        documents: bad documents left out.
        files: files that broke off, so that the rest of them is missing.
        messages: of the first few.
    """

    skip: bool = False
    documents: int = 0
    files: int = 0
    messages: list[str] = field(default_factory=list)

    def document(self, error: DataError) -> None:
        """Meet a bad document. Raises ``error`` unless it is to be left out."""
        self._meet(error)
        self.documents += 1

    def file(self, error: DataError) -> None:
        """Meet a file that breaks off. Raises ``error`` unless that is to be accepted."""
        self._meet(error)
        self.files += 1

    def _meet(self, error: DataError) -> None:
        if not self.skip:
            hints = [error.hint] if error.hint else []
            hint = "; ".join([*hints, "to skip what is damaged: --on-error skip"])
            raise DataError(error.message, hint=hint) from error
        if len(self.messages) < _SHOWN:
            self.messages.append(error.message)
            _LOG.warning("skipped: %s", error.message)

    def summary(self) -> str | None:
        """Return one line on what was left out; None if nothing was."""
        if not self.documents and not self.files:
            return None
        parts = [f"skipped: {counted(self.documents, 'damaged document')}"] if self.documents else []
        parts += [f"broken off: {counted(self.files, 'file')}"] if self.files else []
        return f"{'; '.join(parts)}; the first: {self.messages[0]}"

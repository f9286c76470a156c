"""The one kind of error that a user is meant to read."""

from __future__ import annotations


class UserError(Exception):
    """A mistake that the user can mend: shown as two lines, without a traceback.

    Args:
        message: what is wrong, where (file, line or key) and the value found.
        hint: what to do about it, as an instruction.
        exit_code: the process's exit code; 2 is usage or refused input, 1 a failure of the tool.
    """

    exit_code: int = 1

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"

"""The two quoting rules of job scripts, and the type that proves that a value went through one of them.

A *shell word* goes through `sh`. A *directive value* goes through `hpcjob.schedulers.directives`, which refuses what
its scheduler cannot take. A template that puts out anything else fails: only `ScriptText` is let through.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from hpcjob.errors import InputError

# Linux takes no longer argument or variable (MAX_ARG_STRLEN, 32 pages) than this, the closing NUL included.
MAX_BYTES = 131_072
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
_SPECIAL = re.compile(r"['\\$`\n\t]")  # $ and ` for the eye: nothing in $'...' looks like an expansion
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}


class ScriptText(str):
    """Text that may stand in a script as it is: quoted, validated, or written by hpcjob itself."""

    __slots__ = ()


def sh(value: str | int, key: str) -> ScriptText:
    """Return ``value`` as one word of bash; a `ScriptText` is returned as it is.

    Newlines and tabs arrive unchanged but do not stand in the script literally: a value can begin no line there, which
    a scheduler might take for a directive.

    Args:
        key: the key that gave the value, named in the error.

    Raises:
        InputError: the value cannot be handed to a program (NUL, too long), is no text, or has control characters.
    """
    if isinstance(value, ScriptText):
        return value
    text = str(value)
    check_text(text, key, allowed="\n\t")
    if _PLAIN.fullmatch(text):
        return ScriptText(text)
    if _SPECIAL.search(text):
        return ScriptText("$'" + "".join(_ESCAPES.get(character, character) for character in text) + "'")
    return ScriptText(f"'{text}'")


def sh_path(value: str, key: str) -> ScriptText:
    """Return the path ``value`` as one word of bash; ``~/`` begins the home folder of who runs the job. Raises as `sh`.

    YAML leaves the ``~`` to its reader, and a quoted one means nothing to bash.
    """
    if isinstance(value, ScriptText) or not value.startswith("~/"):
        return sh(value, key)
    return ScriptText(f'"$HOME"/{sh(value.removeprefix("~/"), key)}')


def sh_words(values: Iterable[str | int], key: str) -> ScriptText:
    """Return all ``values`` as words of bash in one line. Raises as `sh` does."""
    return ScriptText(" ".join(sh(value, key) for value in values))


def comment(value: str) -> ScriptText:
    """Return ``value`` for the end of a comment line: what could end the line or disguise it becomes ``?``."""
    return ScriptText("".join("?" if _is_odd(character) else character for character in str(value)))


def check_text(text: str, key: str, allowed: str = "") -> None:
    """Refuse text with control characters other than ``allowed``, broken Unicode, or beyond the system's limit.

    Raises:
        InputError: naming ``key``.
    """
    for character in text:
        if unicodedata.category(character) == "Cc" and character not in allowed:
            raise InputError(
                f"{key}: control character U+{ord(character):04X} in {shorten(text)}", hint="remove it from the value"
            )
        if unicodedata.category(character) == "Cs":
            raise InputError(f"{key}: {shorten(text)} is not valid UTF-8", hint="write the value in UTF-8")
    if len(text.encode()) >= MAX_BYTES:
        raise InputError(
            f"{key}: {len(text.encode())} bytes, a program can be given {MAX_BYTES - 1}",
            hint="put the value into a file and give its path",
        )


def shorten(text: str, length: int = 60) -> str:
    """Return ``text`` as Python shows it, cut to about ``length`` characters."""
    return repr(text if len(text) <= length else f"{text[: length - 3]}...")


def _is_odd(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")

"""Text from elsewhere (names, answers of schedulers) as a terminal may show it."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return ``text`` with control characters, and what else is not shown, escaped; those in ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def message(text: str) -> str:
    """Return a message with control characters escaped; its line breaks stay."""
    return printable(text, keep="\n")


def tell(text: str, program: str = "hpcjob") -> None:
    """Print a message on stderr, under the name of who says it."""
    import sys

    print(f"{program}: {message(text)}", file=sys.stderr)

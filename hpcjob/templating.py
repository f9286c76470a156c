"""The Jinja environment of job scripts: sandboxed, strict, and refusing every value that went through no filter."""

from __future__ import annotations

import filecmp
import hashlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from hpcjob import quoting, resources
from hpcjob.errors import HpcjobError
from hpcjob.profile import SchedulerName
from hpcjob.quoting import ScriptText
from hpcjob.schedulers.directives import directive
from hpcjob.template_cache import template_cache

KIND = "templates"
_LINE_LENGTH = 118


class Loader(jinja2.BaseLoader):
    """Loads templates from the user's folders, then from hpcjob's own, and remembers what it loaded.

    Args:
        given: a file that is used for the template ``name`` wherever it lies.

    Attributes:
        used: name -> path, in the order of loading.
    """

    def __init__(self, given: Path | None = None, name: str = "") -> None:
        self._given = {name: given} if given else {}
        self._digest = hashlib.sha256()
        self.used: dict[str, Path] = {}

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Return text, path and freshness of a template, as Jinja asks for it."""
        path = self._given.get(template) or resources.find(KIND, template)[0]
        if path is None:
            raise jinja2.TemplateNotFound(template)
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise HpcjobError(f"{path}: {reason}", hint="a template is a readable text file in UTF-8") from None
        self.used[template] = path
        self._digest.update(text.encode())
        return text, str(path), lambda: True

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of all templates that were loaded, in order."""
        return self._digest.hexdigest()

    def own(self) -> list[Path]:
        """Return those of the user's that were used and are not, byte for byte, the shipped ones of their names."""
        ours = resources.shipped(KIND)
        return [path for name, path in self.used.items() if not _same(path, ours / name)]


def _same(path: Path, shipped: Path) -> bool:
    """Whether a template is the shipped one, or a copy of it, as in a checkout beside an installation."""
    return path == shipped or (shipped.is_file() and filecmp.cmp(path, shipped, shallow=False))


def environment(loader: Loader, scheduler: SchedulerName) -> jinja2.Environment:
    """Return the environment whose filters are the only way of a text into a script of ``scheduler``.

    Whole numbers need no filter.

    ``sh(key)`` and ``sh_words(key)``: words of bash. ``sh_path(key)``: a path, whose ``~/`` is the home folder.
    ``directive(key)``: the value of a directive. ``comment``: the end
    of a comment line. ``command(key)``: a launch line over several lines. Comments are written ``{## ##}``, because
    ``{#`` is bash's length of a variable.
    """
    made = SandboxedEnvironment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        finalize=_only_filtered,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",
        comment_end_string="##}",
        cache_size=0,
        optimized=False,  # each template is used once
        bytecode_cache=template_cache(),
    )
    made.filters = {
        "sh": quoting.sh,
        "sh_path": quoting.sh_path,
        "sh_words": quoting.sh_words,
        "comment": quoting.comment,
        "directive": lambda value, key: directive(scheduler, value, key),
        "command": _command,
        "indented": _indented,
        "length": len,
    }
    return made


@contextmanager
def mendable(main: str, loader: Loader) -> Iterator[None]:
    """Tell what is wrong with a template by its file and line. Raises HpcjobError."""
    try:
        yield
    except jinja2.TemplateNotFound as error:
        raise HpcjobError(f"there is no template {error.name}", hint="put it into a folder `templates`") from None
    except jinja2.TemplateSyntaxError as error:
        where = f"{error.filename or main}:{error.lineno}"
        raise HpcjobError(f"{where}: {error.message}", hint="fix the template") from None
    except jinja2.TemplateError as error:
        used = ", ".join(map(str, loader.used.values()))
        raise HpcjobError(f"template: {error.message}", hint=f"fix one of {used}") from None


def _only_filtered(value: Any) -> ScriptText | int:
    if isinstance(value, ScriptText) or type(value) is int:
        return value
    raise jinja2.TemplateRuntimeError(
        f"the value {quoting.shorten(str(value))} went through no filter: use sh(key), directive(key) or comment"
    )


def _indented(text: str) -> str:
    """Return the text of a ``{% filter indented %}`` block two columns to the right; not a `ScriptText`."""
    return textwrap.indent(text, "  ")


def _command(parts: Sequence[Sequence[str]], key: str) -> ScriptText:
    """Return a command of several lines: each of ``parts`` begins one, and goes on to the next where it is long."""
    lines = []
    for words in parts:
        lines.append("")
        for word in words:
            quoted = quoting.sh(word, key)
            if lines[-1] and len(lines[-1]) + len(quoted) > _LINE_LENGTH - 6:
                lines.append("")
            lines[-1] += f" {quoted}" if lines[-1] else quoted
    return ScriptText(" \\\n  ".join(lines))

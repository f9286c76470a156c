"""A click group that imports a command only when it is asked for, and shows user errors as two lines."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import click

from neoxlite.common import streams
from neoxlite.common.errors import UserError
from neoxlite.common.printable import message

_OF_FILES = {
    errno.EACCES: "check who may read and write it (ls -ld); --debug shows what wanted to",
    errno.EPERM: "check who may read and write it (ls -ld); --debug shows what wanted to",
    errno.EROFS: "it is on a file system that accepts no files; --debug shows what wanted to write",
    errno.ENOSPC: "free some space there; --debug shows what wanted to write",
    errno.EDQUOT: "your quota there is exhausted; --debug shows what wanted to write",
}


class LazyGroup(click.Group):
    """A command group whose commands live in modules of their own, imported on use.

    Args:
        lazy: command name -> ("package.module:attribute", short help). The short help stands here so that ``--help`` of
            the group imports none of the modules.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names in the order they were declared, which is the order of a user's day."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None if there is none of that name."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with; of an unknown one near names are offered."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from neoxlite.common.near import did_you_mean

            offered = did_you_mean(name, self.list_commands(ctx))
            ctx.fail(f"No such command {name!r}" + (f"; {offered}" if offered else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of commands from the short helps, without importing anything."""
        rows = [(name, short) for name, (_, short) in self._lazy.items()]
        rows += [
            (name, command.get_short_help_str(70)) for name, command in self.commands.items() if not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def run(
    group: click.Group,
    program: str,
    argv: list[str] | None = None,
    extras: Mapping[str, str] | None = None,
    *,
    files_are_the_users: bool = False,
) -> int:
    """Run ``group`` and return the process's exit code.

    ``extras`` names what to install for a module that may be missing: module -> ``hpcjob[train]``. With
    ``files_are_the_users`` a file that may not be read or written, or a full disk, is told like a `UserError`.

    A `UserError` becomes ``program: message`` and its hint on stderr; with ``--debug`` or HPCJOB_DEBUG a traceback too.
    Output that cannot be written is told in one line, and the code is 1; a broken pipe (``| head``) ends quietly with
    1, as click does it; Ctrl-C with 130. A command that does more than print goes on and has its own code: see
    `streams.outlive`.
    """
    if argv is None:
        streams.prepare()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = bool(os.environ.get("HPCJOB_DEBUG"))
    if "--debug" in arguments[: arguments.index("--")] if "--" in arguments else "--debug" in arguments:
        arguments.remove("--debug")
        debug = True
    code = _run(group, program, arguments, extras or {}, debug, files_are_the_users)
    error = streams.finish()
    if error is None:
        return code
    if not streams.reader_left(error):
        _report(_of_output(error), program, debug, sys.stderr)
    return code if streams.lost() else code or 1


def _run(
    group: click.Group,
    program: str,
    arguments: list[str],
    extras: Mapping[str, str],
    debug: bool,
    files_are_the_users: bool,
) -> int:
    try:
        result = group.main(args=arguments, prog_name=program, standalone_mode=False)
    except UserError as error:
        return _report(error, program, debug, sys.stderr)
    except ModuleNotFoundError as error:
        extra = extras.get(error.name or "")
        if extra is None:
            raise
        needed = UserError(f"this needs {error.name}, which is not installed", hint=f"pip install '{extra}'")
        return _report(needed, program, debug, sys.stderr)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(file=shown)
        sys.stderr.write(message(shown.getvalue()))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        streams.drop_output()
        return 1
    except OSError as error:
        if error.filename == streams.STANDARD_OUTPUT:
            streams.drop_output()
            return _report(_of_output(error), program, debug, sys.stderr)
        if not files_are_the_users or error.errno not in _OF_FILES:
            raise
        told = UserError(f"{error.filename or 'a file'}: {error.strerror}", hint=_OF_FILES[error.errno])
        told.__cause__ = error
        return _report(told, program, debug, sys.stderr)
    return result if isinstance(result, int) else 0


def _of_output(error: OSError) -> UserError:
    told = UserError(f"{streams.STANDARD_OUTPUT}: {error.strerror}")
    told.__cause__ = error
    return told


def _report(error: UserError, program: str, debug: bool, stream: TextIO) -> int:
    if debug:
        import traceback

        traceback.print_exception(error, file=stream)
    print(f"{program}: {message(error.message)}", file=stream)
    if error.hint:
        print(f"{' ' * len(program)}  {message(error.hint)}", file=stream)
    return error.exit_code

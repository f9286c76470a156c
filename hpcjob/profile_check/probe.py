"""Commands of a login node: each with a time limit; one that fails is remembered with its words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcjob.errors import SchedulerError
from hpcjob.quoting import sh_path
from hpcjob.schedulers import commands

if TYPE_CHECKING:
    from hpcjob.profile import Modules

TIMEOUT_S = 30.0
_MARK = "=hpcjob="


@dataclass
class Probe:
    """Asks commands, and keeps what went wrong.

    Attributes:
        failed: command line -> why it gave no answer.
    """

    timeout_s: float = TIMEOUT_S
    failed: dict[str, str] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    def ask(self, argv: Sequence[str]) -> str | None:
        """Return what ``argv`` printed on stdout; None where it failed or took too long: then it is not asked again."""
        line = shlex.join(argv)
        if argv[0] in self._silent:
            self.failed[line] = f"{argv[0]}: not tried, it had not answered before"
            return None
        try:
            done = commands.run(argv, timeout_s=self.timeout_s)
        except SchedulerError as error:
            if isinstance(error, commands.CommandTimeoutError):
                self._silent.add(argv[0])
            self.failed[line] = error.message
            return None
        if done.code != 0:
            self.failed[line] = f"{argv[0]}: {done.said}"
            return None
        return done.stdout

    def modules(self, modules: Modules, *, loaded: Sequence[str], script: str, label: str) -> str | None:
        """Return what ``script`` prints in a shell with ``loaded`` modules; None where there is no answer.

        Args:
            label: how the command is called where it fails.
        """
        lines = [f"builtin source {sh_path(modules.init, 'modules.init')} || exit 9"] if modules.init else []
        lines += ["[[ $(type -t module) ]] || { echo 'there is no command module' >&2; exit 9; }"]
        lines += ["module purge >/dev/null 2>&1"] if modules.purge and loaded else []
        lines += [f"module use {sh_path(folder, 'modules.use')}" for folder in modules.use]
        lines += [f"module load {shlex.quote(name)} >/dev/null 2>&1 || :" for name in loaded]
        text = self._bash("\n".join([*lines, f"echo {_MARK}", script]), label)
        return None if text is None else text.partition(f"{_MARK}\n")[2]

    def plain(self, script: str, label: str) -> str | None:
        """Return what ``script`` prints in a bash without modules."""
        return self._bash(script, label)

    def _bash(self, script: str, label: str) -> str | None:
        try:
            done = commands.run(["bash", "-c", script], timeout_s=self.timeout_s, name=label)
        except SchedulerError as error:
            self.failed[label] = error.message
            return None
        if done.code == 9:
            self.failed[label] = done.said
            return None
        return done.stdout

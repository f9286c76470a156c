"""Stub modulefiles, laid out as on the sites: each sets NAME_HOME and puts its ``bin`` and ``lib`` on the paths.

They are Tcl files, which both Environment Modules and Lmod read. A program of a module is a script that prints recorded
output.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

INIT_SCRIPTS = ("/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash")


def init_script() -> str | None:
    """The file that gives a bash the ``module`` command; None where no module system is installed."""
    return next((path for path in INIT_SCRIPTS if Path(path).is_file()), None)


@dataclass(frozen=True)
class ModuleTree:
    """A folder of modulefiles (``files``) with what they point at (``opt``)."""

    folder: Path

    @property
    def files(self) -> Path:
        """What ``module use`` takes."""
        return self.folder / "modulefiles"

    def home(self, name: str) -> Path:
        """Where the module's programs and headers are, its NAME_HOME."""
        return self.folder / "opt" / name

    def add(
        self,
        name: str,
        *,
        programs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        files: Mapping[str, str] = MappingProxyType({}),
        lines: Sequence[str] = (),
    ) -> None:
        """Make the module ``name`` (such as ``cuda/11.8/11.8.0``).

        Args:
            programs: program -> its arguments in one word -> what it then prints; with others it fails.
            files: path below the module's home -> text.
            lines: more of the modulefile.
        """
        home = self.home(name)
        for kind in ("bin", "lib", "include"):
            (home / kind).mkdir(parents=True, exist_ok=True)
        for program, outputs in programs.items():
            self._write_program(home / "bin" / program, outputs)
        for path, text in files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        variable = name.partition("/")[0].upper().replace("-", "_")
        self.write(
            name,
            f'module-whatis "stub of {name}"',
            f"setenv {variable}_HOME {home}",
            f"prepend-path PATH {home}/bin",
            f"prepend-path LD_LIBRARY_PATH {home}/lib",
            *lines,
        )

    @staticmethod
    def _write_program(path: Path, outputs: Mapping[str, str]) -> None:
        cases = []
        for number, (arguments, output) in enumerate(outputs.items()):
            recorded = path.with_name(f".{path.name}.{number}")
            recorded.write_text(output)
            cases.append(f"  {shlex.quote(arguments)}) exec cat {shlex.quote(str(recorded))} ;;\n")
        path.write_text(f'#!/bin/sh\ncase "$*" in\n{"".join(cases)}esac\nexit 2\n')
        path.chmod(0o755)

    def add_broken(self, name: str, message: str) -> None:
        """Make a module that fails while it loads."""
        self.write(name, f'error "{message}"')

    def write(self, name: str, *lines: str) -> None:
        """Write one modulefile."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["#%Module1.0", *lines, ""]))

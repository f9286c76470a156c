"""Stub modulefiles, laid out as on the sites: each sets NAME_HOME and puts its ``bin`` and ``lib`` on the paths.

They are Tcl files, which both Environment Modules and Lmod read. A program of a module is a script that prints recorded
output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
        self, name: str, programs: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Make the module ``name`` (such as ``cuda/11.8/11.8.0``).

        ``programs`` maps names to the output they print, ``headers`` file names under ``include`` to their text.
        """
        home = self.home(name)
        for kind in ("bin", "lib", "include"):
            (home / kind).mkdir(parents=True, exist_ok=True)
        for program, output in (programs or {}).items():
            (home / "bin" / f"{program}.out").write_text(output)
            (home / "bin" / program).write_text(f'#!/bin/sh\nexec cat "{home}/bin/{program}.out"\n')
            (home / "bin" / program).chmod(0o755)
        for header, text in (headers or {}).items():
            (home / "include" / header).write_text(text)
        variable = name.partition("/")[0].upper().replace("-", "_")
        self.write(
            name,
            f'module-whatis "stub of {name}"',
            f"setenv {variable}_HOME {home}",
            f"prepend-path PATH {home}/bin",
            f"prepend-path LD_LIBRARY_PATH {home}/lib",
        )

    def add_broken(self, name: str, message: str) -> None:
        """Make a module that fails while it loads."""
        self.write(name, f'error "{message}"')

    def write(self, name: str, *lines: str) -> None:
        """Write one modulefile."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["#%Module1.0", *lines, ""]))

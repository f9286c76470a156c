"""Entry point of the emulated commands: ``python __main__.py SYSTEM FOLDER COMMAND [ARGUMENT]...``."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.emulators import machine, pbs, pjm  # noqa: E402 - the path comes first

if __name__ == "__main__":
    system, folder, command, *arguments = sys.argv[1:]
    here = machine.Machine(Path(folder))
    if system == "run":
        machine.run(here, command)
    else:
        sys.exit({"pbs": pbs.main, "pjm": pjm.main}[system](here, command, arguments))

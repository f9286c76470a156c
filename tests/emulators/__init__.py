"""PBS Professional and Fujitsu's PJM as commands that run jobs on this machine; their words are files in ``replies``.

Neither can be installed from a package, so their commands are emulated: written from the sources that ``README.md``
lists and apart from what reads them, importing nothing of hpcjob. `Emulator` puts the commands on a PATH and switches
what a site, or a bad day, changes about them.
"""

from tests.emulators.emulator import Emulator

__all__ = ["Emulator"]

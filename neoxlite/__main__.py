"""``python -m neoxlite``: the trainer without its console script."""

import sys

from neoxlite.cli import main

sys.exit(main())

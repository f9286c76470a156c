"""``python -m hpcjob``: the command without its console script."""

import sys

from hpcjob.cli import main

sys.exit(main())

"""``python -m neoxlite.deepy train.py -d configs 125M.yml local_setup.yml``: GPT-NeoX's way to start a run."""

import sys

from neoxlite.launch.deepy import main

if __name__ == "__main__":
    sys.exit(main())

"""GPT-NeoX's command, run by neoxlite: ``python ./deepy.py train.py -d configs 125M.yml local_setup.yml``."""

import sys

from neoxlite.launch.deepy import main

if __name__ == "__main__":
    sys.exit(main())

"""The program: `hpcjob.schedulers.supervisor.run`, started with ``python -I -S``, which finds nothing but itself."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))  # behind the standard library: nothing here may hide it

from hpcjob.schedulers.supervisor.run import main

if __name__ == "__main__":
    main(sys.argv[1:])

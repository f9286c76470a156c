"""`python -m neoxlite` with torch's deterministic algorithms, so that two runs can be compared bit for bit."""

import sys

import torch

from neoxlite.cli import main

if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # cuDNN's attention does not heed warn_only
    torch.utils.deterministic.fill_uninitialized_memory = False
    sys.exit(main(sys.argv[1:]))

"""A process that a signal ends says where."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forked_worlds import write_dataset

_READ = """
import faulthandler, os, resource, sys
from neoxlite.data.indexed import IndexedDataset
from neoxlite.training.faults import dump_at_faults
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.disable()
dump_at_faults()
data = IndexedDataset(sys.argv[1])
os.truncate(sys.argv[1] + ".bin", 0)
def read():
    data.get(0).sum()
os.abort() if sys.argv[2] == "abort" else read()
"""


@pytest.mark.parametrize(("what", "number"), [("read", signal.SIGBUS), ("abort", signal.SIGABRT)])
def test_a_data_file_that_is_cut_under_the_reader(what: str, number: int, tmp_path: Path) -> None:
    """The stack leads to the reader; of an abort nothing is added to what it has said."""
    write_dataset(tmp_path / "文書", [np.arange(5000, dtype=np.uint16)])
    arguments = [sys.executable, "-c", _READ, str(tmp_path / "文書"), what]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240)
    assert done.returncode == -number
    assert ("Fatal Python error: Bus error" in done.stderr) is (what == "read")
    assert ("in read\n" in done.stderr) is (what == "read")

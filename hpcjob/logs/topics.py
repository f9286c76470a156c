"""What a cause can be about: the exit code that tells scripts, and the order of blame.

The order follows how faults spread: broken hardware and a kill by the scheduler make every process complain, a process
that runs out of memory or raises makes its peers lose their connections, and what waits for them times out in the end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hpcjob import exitcodes


class Topic(NamedTuple):
    """One kind of cause.

    Attributes:
        code: exit code of ``hpcjob explain``, within `hpcjob.exitcodes`' range of findings.
        blame: of two causes the one with the smaller number made the other; equal ones are ordered by time.
    """

    code: int
    blame: int


HARDWARE: Final = 64
LIMIT: Final = 65
ENDED: Final = 66
MEMORY: Final = 67
GPU_MEMORY: Final = 68
STORAGE: Final = 69
NETWORK: Final = 70
LAUNCH: Final = 71
VERSION: Final = 72
CONFIGURATION: Final = 73
DATA: Final = 74
NUMERICS: Final = 75
PROGRAM: Final = 76
TIMEOUT: Final = 77
SLOW: Final = 78
UNKNOWN: Final = 79

TOPICS: Final[dict[str, Topic]] = {
    "hardware": Topic(HARDWARE, 10),
    "node": Topic(ENDED, 15),
    "walltime": Topic(LIMIT, 20),
    "limit": Topic(LIMIT, 20),
    "preemption": Topic(ENDED, 20),
    "memory": Topic(MEMORY, 20),
    "gpu-memory": Topic(GPU_MEMORY, 30),
    "mapping": Topic(STORAGE, 34),  # before the SIGBUS that it makes (`hpcjob.logs.explain.blame`)
    "check": Topic(LAUNCH, 40),
    "launch": Topic(LAUNCH, 40),
    "shm": Topic(MEMORY, 40),
    "storage": Topic(STORAGE, 40),
    "version": Topic(VERSION, 40),
    "configuration": Topic(CONFIGURATION, 40),
    "data": Topic(DATA, 40),
    "numerics": Topic(NUMERICS, 40),
    "program": Topic(PROGRAM, 40),
    "cancelled": Topic(ENDED, 45),
    "network": Topic(NETWORK, 50),
    "rendezvous": Topic(LAUNCH, 55),
    "timeout": Topic(TIMEOUT, 60),
    "scheduler": Topic(LAUNCH, 70),
}
"""By the word that a rule has as its ``topic``."""

MEANINGS: Final[dict[int, str]] = {
    exitcodes.OK: "nothing wrong found",
    HARDWARE: "hardware: a GPU, a link or its memory failed",
    LIMIT: "the walltime or another limit of the job was over",
    ENDED: "ended from outside: stopped on request, cancelled, preempted, or a node failed",
    MEMORY: "host memory, /dev/shm or locked memory",
    GPU_MEMORY: "GPU memory",
    STORAGE: "a file system: full, quota, damaged files",
    NETWORK: "network between nodes, or between the GPUs of a node",
    LAUNCH: "launch: not all processes came up",
    VERSION: "versions or builds that do not fit together",
    CONFIGURATION: "configuration of the training",
    DATA: "training data or tokenizer",
    NUMERICS: "the training diverged",
    PROGRAM: "an error of the program",
    TIMEOUT: "processes waited for one that did not come; nothing shows why",
    SLOW: "it runs, but not as it should",
    UNKNOWN: "it failed, and no rule knows why",
}
"""What each exit code says."""

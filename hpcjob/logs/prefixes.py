"""What the prefixes of lines look like, and which names before a colon are hosts; `hpcjob.logs.lines` says by whom."""

from __future__ import annotations

import re

import msgspec

PREFIX = re.compile(
    r"""
    \[(?:[^\s@\[\]]{1,255}@)?\d+,(?P<mpi_rank>\d+)\](?:\[[^\]\s]{1,255}\])?<(?P<stream>stdout|stderr|stddiag)>:[ ]?
    |\[(?P<role>[A-Za-z_][A-Za-z_-]{0,63})(?P<role_rank>\d{1,7})(?:\|\d{1,7})?\]:[ ]?
    |[ ]{0,6}(?:(?P<srun_rank>\d{1,7}):[ ]
        |(?P<column>\|)[ ](?=\d{4}-\d\d-\d\dT|[A-Za-z0-9][\w.-]{0,252}:\d{1,10}:\d{1,10}[ ]|libfabric:))
    |[ ]?\[?(?P<time>\d{4}-\d\d-\d\d[T ,]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[ ]?[+-]\d\d:?\d\d)?)
        (?:[ ](?P<groups>(?:[A-Z]P\d{1,6}[ ]){0,4})TP(?P<tp_rank>\d{1,7})(?:[ ][A-Z]P\d{1,6}){0,4}(?=\]))?\]?:?[ ]
    |(?P<american>\d\d/\d\d/\d{4}[ ]\d\d:\d\d:\d\d)[ ]
    |\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ](?P<ctime>[A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d[ ]\d{4})
        (?:\]?[ ]|(?=[\[<]))
    |(?:[A-Z][a-z]{2}|\d{1,2}月)[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ](?P<syslog_host>[A-Za-z0-9][\w.-]{0,252})[ ]
        (?:(?=kernel:)|[\w.@-]{1,100}\[\d{1,10}\]:[ ])
    |(?P<syslog>kernel:[ ](?:\[[ ]{0,8}\d{1,10}\.\d{6}\][ ])?|\[[ ]{0,8}\+?\d{1,10}\.\d{6}\][ ])
    |\((?:(?:[A-Za-z_][\w.<>:-]{0,80}[ ])?pid=(?P<ray_pid>\d{1,10})|raylet|autoscaler|gcs_server)
        (?:,[ ]ip=(?P<ray_host>[\w.:-]{1,64}))?(?P<ray>\))[ ]
    |\[pod/(?P<pod>[A-Za-z0-9][\w.-]{0,252})(?:/[^\]\s]{1,253})?\][ ]
    |\[(?P<bracketed>\d{1,9})\][ ](?!(?:[^ ]+[ ])?NCCL[ ])
    |(?P<stdio>stdout|stderr):[ ]
    |(?P<native>\[(?P<native_host>[A-Za-z0-9][\w.-]{0,252}):\d{1,10}(?:[ ]?:\d{1,10}){0,2}\])[ ]
    |(?P<journal_host>[A-Za-z0-9][\w.-]{0,252})[ ](?=kernel:)
    |(?P<nccl_host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10}):\d{1,10}[ ](?:\[\d+\][ ])?
        (?=[^ ]*[ ]?(?:\(\w+\)[ ])?NCCL[ ])
    |(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}):[ ]
    |(?P<numbered_host>[A-Za-z][A-Za-z0-9.-]{0,252})[ ](?P<numbered>\d{1,7}):[ ]
    |[A-Za-z][A-Za-z0-9.-]{0,252}/\d{1,5}(?P<replica>)[ ](?=\[(?:rank|default)\d|Traceback[ ]|[WIE]\d{4}[ ])
    """,
    re.VERBOSE,
)
# What shows that a number in brackets before it is a rank, or in the second case the number of a line.
OF_A_RANK = re.compile(r"[A-Za-z0-9][\w.-]{0,252}:\d{1,10}:\d{1,10} (?:\[\d+\] )?[^ ]* ?NCCL |Traceback \(most recent")
OF_A_LINE = re.compile(r"\[(?:rank|default)\d")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HOST_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9-]*\d(?:\.[A-Za-z0-9.-]+)?|\d{1,3}(?:\.\d{1,3}){3}")
_NO_HOSTS = re.compile(
    r"(?:rank|step|epoch|iter|iteration|layer|stage|gpu|cuda|worker|group|batch|device|dev|sha|md|utf|fp|bf|int|uint|"
    r"float|base|python|test|case|part|shard|level|phase|round|trial|run|task|job|node-?rank|loss|error|channel|ring|"
    r"tree|line|row|col|column|top|acc|f|eth|ib|bond|hsn|nvme|loop|efa|mlx|nvidia-[a-z]+)-?\d+",
    re.IGNORECASE,
)
CRAY_NODE = re.compile(r"x\d{1,5}c\d{1,2}s\d{1,3}b\d{1,2}n\d{1,2}")
"""The name of a node by its place: cabinet, chassis, slot, board, node."""
STEPD = "slurmstepd-"
"""What Slurm puts before a node's name."""
_FILES = (".py", ".cpp", ".cc", ".cu", ".c", ".h", ".hpp", ".rs")
_NO_HOSTS_END = ("Error", "Exception", "Warning", "Timeout", *_FILES)
_LOCAL = ("localhost", "localhost4", "localhost6")
PREFIXES_AT_MOST = 5
"""On one line."""


def is_host(name: str) -> bool:
    """Whether a name that nothing else tells of looks like a host's: ``Error: `` and the like stand there too."""
    if name.startswith(STEPD) or name.endswith(_NO_HOSTS_END):  # urllib3.exceptions.MaxRetryError
        return False
    return _HOST_LIKE.fullmatch(name) is not None and _NO_HOSTS.fullmatch(name) is None


def told(host: str | None) -> str | None:
    """Return the name of a host; None of ``localhost``, which each calls itself."""
    return None if host is not None and host.lower().partition(".")[0] in _LOCAL else host


def iso(time: str) -> str | None:
    """Return a time as others write it: ``Aug 11 12:31:45 2023``, ``08/11/2023 12:31:45``; the month comes first."""
    if time[2] == "/":
        return f"{time[6:10]}-{time[:2]}-{time[3:5]} {time[11:]}"
    month, day, clock, year = time.split()
    return f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d} {clock}" if month in _MONTHS else None


def unwrapped(text: str) -> tuple[str, str | None, str | None] | None:
    """Return text, stream and time of a line that Docker keeps as JSON; None of other lines."""
    try:
        kept = _DOCKER.decode(text)
    except msgspec.DecodeError:
        return None
    return kept.log.rstrip("\r\n"), kept.stream, kept.time


class _Docker(msgspec.Struct):
    """A line of the driver ``json-file``."""

    log: str
    stream: str | None = None
    time: str | None = None


_DOCKER = msgspec.json.Decoder(_Docker)
DOCKER = '{"log":"'
"""What such a line begins with."""

"""Which files hold a job's log, and which of them a view reads.

Names in a job directory: ``ID_job.out`` is the script's own log with the lines of rank 0, ``ID_<rank>_log.out`` each
rank's output (submitit's naming), ``ID_sched.out`` the scheduler's own output, ``nccl.<host>.<pid>.log`` what NCCL
wrote.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from neoxlite.common.printable import printable

_COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
_NAMES = re.compile(
    r"(?P<job>.+)_job\.out|(?P<scheduler>.+)_sched\.out|(?P<rank_job>.+?)_(?P<rank>\d+)_log\.(?:out|err)|(?P<nccl>nccl\..+\.log)"
)
# What a folder may hold beside our own names; GPT-NeoX's log_dir writes the last two.
_OTHERS = (".log", ".out", ".err", "_stdout.txt", "_stderr.txt")
# Of trainers and launchers that write a file a rank: rank_3.log, node01.rank-3.out.
_RANK_IN_NAME = re.compile(r"(?:^|[._-])rank[._-]?0*(\d{1,7})(?=[._-]|$)", re.IGNORECASE)
# torchrun --log-dir writes RUN/attempt_0/LOCAL_RANK/stdout.log.
_TORCHRUN_NAMES = ("stdout.log", "stderr.log")
_DEPTH_AT_MOST = 5
_FILES_AT_MOST = 100_000
# The first "rank" in a file of NCCL is that of the communicator of all ranks.
_NCCL_RANK = re.compile(rb" rank (\d{1,7}) n[rR]anks \d")
_NCCL_HEAD_BYTES = 256 * 1024
_RANKS_OF_NCCL: dict[Path, int] = {}  # once a file tells its rank it is not asked again while it is followed


class Kind(enum.Enum):
    """What a log file holds."""

    JOB = "job"
    RANK = "rank"
    SCHEDULER = "scheduler"
    NCCL = "nccl"
    OTHER = "other"


class Source(msgspec.Struct, frozen=True):
    """One log file; it need not exist yet.

    Attributes:
        rank: the rank whose output the file holds alone, if it is such a file; host: the host likewise.
    """

    path: Path
    kind: Kind = Kind.OTHER
    rank: int | None = None
    host: str | None = None


Provider = Callable[[], Iterable[Source]]
"""Names the files of now; asked again while following, since rank files appear as ranks start."""


def listed(paths: Iterable[Source | Path]) -> Provider:
    """Provide exactly these files."""
    sources = of_torchrun([path if isinstance(path, Source) else classify(path) for path in paths])
    return lambda: sources


def classify(path: Path) -> Source:
    """Tell a file's kind from its name."""
    name = plain_name(path.name)
    match = _NAMES.fullmatch(name)
    if match is None:
        rank = _RANK_IN_NAME.search(name)
        return Source(path) if rank is None else Source(path, Kind.RANK, int(rank[1]))
    if match["rank"] is not None:
        return Source(path, Kind.RANK, int(match["rank"]))
    if match["job"] is not None:
        return Source(path, Kind.JOB)
    return Source(path, Kind.SCHEDULER if match["scheduler"] is not None else Kind.NCCL)


def attempt_of(path: Path) -> Path | None:
    """Return the folder of an attempt, if a file is of torchrun's ``--log-dir``: ``RUN/attempt_0/RANK/stdout.log``."""
    folder = path.parent.parent
    is_one = plain_name(path.name) in _TORCHRUN_NAMES and path.parent.name.isdecimal()
    return folder if is_one and folder.name.startswith("attempt_") else None


def short_name(source: str) -> str:
    """Return a file's name for a message; torchrun's are told apart by their folders only."""
    path = Path(source)
    return printable("/".join(path.parts[-3:]) if attempt_of(path) is not None else path.name or source)


def of_torchrun(sources: list[Source]) -> list[Source]:
    """Add the ranks that torchrun's folders are called by: those of a node, so only where one node's are there."""
    runs = {attempt.parent for source in sources if (attempt := attempt_of(source.path)) is not None}
    if len(runs) != 1:
        return sources
    return [
        source if attempt_of(source.path) is None else Source(source.path, Kind.RANK, int(source.path.parent.name[:7]))
        for source in sources
    ]


def plain_name(name: str) -> str:
    """Return a file's name without the suffix of its compression."""
    return next((name.removesuffix(suffix) for suffix in _COMPRESSED if name.endswith(suffix)), name)


class JobFiles:
    """The log files of a directory, by view; ``job_id`` leaves out the files of other jobs that share the directory."""

    def __init__(self, directory: Path, job_id: str | None = None) -> None:
        self.directory = directory
        self.job_id = job_id

    def all(self) -> list[Source]:
        """List what is there now: job log, scheduler's output, ranks in order, NCCL's files, others."""
        paths = _logs_in(self.directory)
        if not paths and self.job_id is None:
            paths = _logs_below(self.directory)
        if self.job_id is not None:
            names = {path.name for path in paths}
            paths += [path for path in _logs_of_elements(self.directory, self.job_id) if path.name not in names]
        sources = of_torchrun([classify(path) for path in paths if self._mine(path.name)])
        order = list(Kind)
        order.insert(1, order.pop(order.index(Kind.SCHEDULER)))
        return sorted(
            sources,
            key=lambda source: (order.index(source.kind), _element(source.path), source.rank or 0, source.path.name),
        )

    def _mine(self, name: str) -> bool:
        return self.job_id is None or name.startswith((f"{self.job_id}_", "nccl."))

    def main(self) -> list[Source]:
        """The job log and the scheduler's output; without a job log rank 0's file, else the other files."""
        sources = self.all()
        told = [source for source in sources if source.kind is Kind.SCHEDULER]
        for wanted in (
            lambda source: source.kind is Kind.JOB,
            lambda source: source.rank == 0,
            lambda source: source.kind is Kind.OTHER,
        ):
            chosen = [source for source in sources if wanted(source)]
            if chosen:
                return chosen + told
        return told

    def digest(self) -> list[Source]:
        """All but rank 0's file where the job log holds the same lines; what tells of iterations first."""
        sources = self.all()
        if any(source.kind is Kind.JOB for source in sources):
            return [source for source in sources if source.rank != 0 or source.kind is not Kind.RANK]
        return sources

    def of(self, ranks: Collection[int] | None, hosts: Collection[str] | None, *, nccl: bool) -> list[Source]:
        """The files of some ranks or hosts; with ``nccl`` also what NCCL wrote there, once a file tells its rank.

        Of hosts also the files of all: their lines are told apart by prefixes.
        """
        sources = self.all()
        names = None if hosts is None else {*(host.lower() for host in hosts), *map(_short, hosts)}
        where = {} if names is None else _hosts_of_ranks(self.directory)
        chosen = []
        for source in sources:
            if source.kind is Kind.NCCL:
                if not nccl:
                    continue
                host = nccl_host(source.path)
                rank = _nccl_rank(source.path) if ranks is not None else None
                source = Source(source.path, Kind.NCCL, rank, host)
            elif source.rank is not None and source.rank in where:
                source = Source(source.path, source.kind, source.rank, where[source.rank])
            if ranks is not None and source.rank not in ranks:
                continue
            if source.host is not None and not _is_named(source.host, names):
                continue
            chosen.append(source)
        return chosen


def _short(host: str) -> str:
    return host.lower().partition(".")[0]


def _is_named(host: str, names: Collection[str] | None) -> bool:
    return names is None or _short(host) in names


def nccl_host(path: Path) -> str | None:
    """Return the host in the name of a file of NCCL, ``nccl.HOST.PID.log``."""
    name = plain_name(path.name).removeprefix("nccl.").removesuffix(".log")
    return name.rpartition(".")[0] or None


def hosts_of(directory: Path) -> dict[str, int]:
    """Return the hosts of a job and how many processes each runs, by its hostfile (``host slots=N``)."""
    try:
        text = (directory / "hostfile").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            slots = next((word[6:] for word in words[1:] if word.startswith("slots=")), "")
            found[words[0]] = int(slots) if slots.isascii() and slots.isdigit() and len(slots) < 6 else 1
    return found


def _hosts_of_ranks(directory: Path) -> dict[int, str]:
    """Return where each rank runs: ranks are counted along the hostfile."""
    hosts = [name for name, slots in hosts_of(directory).items() for _ in range(slots)]
    return dict(enumerate(hosts))


def _element(path: Path) -> int:
    """Return the index of the element that a log is of; 0 of a single job's."""
    folder = path.parent.name
    return int(folder) if folder.isdecimal() and f"_{folder}_" in path.name else 0


def _logs_in(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if plain_name(path.name).endswith(_OTHERS)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _logs_of_elements(directory: Path, array: str) -> list[Path]:
    """Return the logs of an array's elements, each in a folder that is called as its index, in their order."""
    try:
        names = sorted((name for name in os.listdir(directory) if name.isdecimal()), key=int)  # noqa: PTH208
    except OSError:
        return []
    return [path for name in names for path in _logs_in(directory / name) if path.name.startswith(f"{array}_{name}_")]


def _logs_below(directory: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(directory):
        depth = len(Path(folder).relative_to(directory).parts)
        if depth >= _DEPTH_AT_MOST or len(found) >= _FILES_AT_MOST:
            folders.clear()
        folders.sort()
        found += [Path(folder, name) for name in sorted(names) if plain_name(name).endswith(_OTHERS)]
    return found


def _nccl_rank(path: Path) -> int | None:
    if path in _RANKS_OF_NCCL:
        return _RANKS_OF_NCCL[path]
    try:
        with path.open("rb") as file:
            match = _NCCL_RANK.search(file.read(_NCCL_HEAD_BYTES))
    except OSError:
        return None
    if match is None:
        return None
    return _RANKS_OF_NCCL.setdefault(path, int(match[1]))

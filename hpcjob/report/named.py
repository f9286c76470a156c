"""The runs that the words after ``hpcjob plot`` mean.

A word is a job (id, name, ``latest``), a file, a directory, a pattern, or ``-``. A job or a job directory is one log,
each file of another directory or pattern its own. Logs become one run where one says that it loaded a checkpoint from
where another saves, and for jobs of one name and profile where one began at an iteration that another had reached. Of
a job that did not begin at the beginning, the earlier jobs of its name are looked up too.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcjob.arrays import parse_spec
from hpcjob.errors import InputError
from hpcjob.logs.reading import Reader
from hpcjob.logs.sources import JobFiles, Kind, Source, classify, plain_name
from hpcjob.logs.target import STANDARD_INPUT, Target, resolve
from hpcjob.report.attempts import Log
from hpcjob.report.collect import gather, read_log, shapes
from hpcjob.report.runs import Run, continues, loads_from, make_run, one_log, went_on

if TYPE_CHECKING:
    from hpcjob.tracking.records import Record

_EARLIER_AT_MOST = 100


@dataclass(frozen=True)
class _Named:
    """One log, with what it is called and the job it is of."""

    log: Log
    path: Path
    name: str
    record: Record | None = None

    @property
    def key(self) -> tuple[Path, str | None]:
        """What makes it one: jobs that were attached may share a folder."""
        return self.path, None if self.record is None else self.record.id


def load_runs(words: Sequence[str], *, merge: bool | None = None) -> list[Run]:
    """Return the runs that are meant, in the order named; a run whose log has no iterations is among them.

    Each element of an array is a job of its own.

    Args:
        merge: True makes all one run, in the order named; False leaves each log a run of its own; None decides as said
            above.

    Raises:
        UnknownJobError: neither a path nor a job.
        InputError: a file cannot be read.
    """
    logs = _once(named for word in words or ("latest",) for named in _named(word))
    if merge is None:
        logs = _once([*logs, *(one for named in logs for one in _earlier(named, logs))])
    groups = _groups(logs) if merge is None else [logs] if merge else [[named] for named in logs]
    names = _names([group[-1] for group in groups])
    return [make_run(name, one_log(named.log for named in group)) for name, group in zip(names, groups, strict=True)]


def _once(logs: Iterable[_Named]) -> list[_Named]:
    found: dict[tuple[Path, str | None], _Named] = {}
    for named in logs:
        found.setdefault(named.key, named)
    return list(found.values())


def _named(word: str) -> list[_Named]:
    if word == STANDARD_INPUT:
        log = gather(Reader(shapes()).stream(sys.stdin.buffer, "stdin"))
        return [_Named(log, Path(word), "stdin")]
    target = resolve([word])
    if target.job_id is not None:
        from hpcjob.tracking.lookup import elements, find_job

        return [_of_job(record) for record in elements(find_job(word))]
    if target.directory is not None:
        return _of_directory(target.directory)
    return [named for path in target.paths for named in _of_path(path)]


def _of_path(path: Path) -> list[_Named]:
    if path.is_dir():
        return _of_directory(path)
    return [_Named(read_log([classify(path)]), path, plain_name(path.name).rpartition(".")[0] or path.name)]


def _of_directory(directory: Path) -> list[_Named]:
    """Return the logs in a directory: one where it is a job's, else one a file."""
    files = JobFiles(directory).main()
    ours = [source for source in files if source.kind in (Kind.JOB, Kind.SCHEDULER, Kind.RANK)]
    folders: dict[Path, list[Source]] = {}
    for source in ours:
        folders.setdefault(source.path.parent, []).append(source)
    metrics = directory / "metrics.jsonl"
    if not files and metrics.is_file():
        folders[directory] = []
    logs = [
        _Named(
            read_log(sources, hosts=Target(directory=folder).hosts(), metrics=folder / "metrics.jsonl"),
            folder,
            folder.resolve().name,
        )
        for folder, sources in folders.items()
    ]
    return logs + [named for source in files if source not in ours for named in _of_path(source.path)]


def _of_job(record: Record) -> _Named:
    target = Target(() if record.log is None else (Path(record.log),), record.jobdir, record.job_id)
    sources = [source for source in target.provider("loss", None)() if source.path.exists()]
    log = read_log(sources, hosts=target.hosts(), metrics=target.metrics)
    return _Named(log, Path(record.log) if record.log else record.jobdir, record.name, record)


def _earlier(named: _Named, known: Sequence[_Named]) -> list[_Named]:
    """Return the logs of earlier jobs that the job of ``named`` went on from, the first one first."""
    if named.record is None or not went_on(named.log):
        return []
    from hpcjob.tracking.index import read_index

    later, found, keys = named, [], {one.key for one in known}
    older = [one for record in read_index().records for one in _part(record, named.record)]
    for record in [one for one in older if _same_run(one, named.record)][:_EARLIER_AT_MOST]:
        one = _of_job(record)
        if one.key in keys or not continues(later.log, one.log):
            continue
        found.append(one)
        if not went_on(one.log):
            break
        later = one
    return found[::-1]


def _same_run(record: Record, later: Record) -> bool:
    alike = (record.name, record.profile, record.index) == (later.name, later.profile, later.index)
    return alike and record.submitted < later.submitted


def _part(record: Record, like: Record) -> list[Record]:
    """Return of an array the element with the index of ``like``, and of any other job itself."""
    if record.array is None:
        return [record]
    has_it = like.element_of is not None and like.index in parse_spec(record.array)
    return [record.element(like.index)] if has_it else []


def _groups(logs: Sequence[_Named]) -> list[list[_Named]]:
    """Put the logs that are of one run together; of jobs the earlier one first, of others as they were named."""
    groups: list[list[_Named]] = []
    for named in sorted(logs, key=_submitted):
        group = next((group for group in reversed(groups) if any(_goes_on(named, one) for one in group)), None)
        if group is None:
            groups.append([named])
        else:
            group.append(named)
    place = {id(named): number for number, named in enumerate(logs)}
    return sorted(groups, key=lambda group: min(place[id(named)] for named in group))


def _submitted(named: _Named) -> str:
    return "" if named.record is None else named.record.submitted


def _goes_on(later: _Named, earlier: _Named) -> bool:
    if loads_from(later.log, earlier.log):
        return True
    if later.record is None or earlier.record is None:
        return False
    return _same_run(earlier.record, later.record) and continues(later.log, earlier.log)


def _names(logs: Sequence[_Named]) -> list[str]:
    """Return a name for each, different ones: with the job's id or the folder where names meet, else numbered."""
    names = [named.name for named in logs]
    for longer in (_with_place, _with_path):
        counts = Counter(names)
        names = [longer(named) if counts[name] > 1 else name for name, named in zip(names, logs, strict=True)]
    return names


def _with_place(named: _Named) -> str:
    if named.record is not None:
        return f"{named.name} ({named.record.id})"
    return f"{named.path.resolve().parent.name}/{named.path.name}"


def _with_path(named: _Named) -> str:
    return str(named.path)


def require_iterations(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that have iterations.

    Raises:
        InputError: none has.
    """
    told = [run for run in runs if len(run.table)]
    if not told:
        names = ", ".join(run.name for run in runs)
        raise InputError(
            f"no iteration found in {names}" if names else "no log found there",
            hint="the log is empty, or not a trainer's: hpcjob tail JOB --errors shows what stopped it before",
        )
    return told

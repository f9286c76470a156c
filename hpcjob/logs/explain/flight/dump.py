"""One rank's dump of the flight recorder: the collectives that it called last, and how far each came.

Written by PyTorch from 2.3 on (``TORCH_FR_BUFFER_SIZE``, before 2.9 ``TORCH_NCCL_TRACE_BUFFER_SIZE``), as a pickle or
as JSON, one file a rank: ``nccl_trace_rank_3``. Source: PyTorch torch/csrc/distributed/c10d/FlightRecorder.hpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hpcjob.logs.explain.flight import unpickle
from hpcjob.logs.lazy import lazy

BYTES_AT_MOST = 64 * 2**20
_CALLS_KEPT = 32  # of each group: thousands of ranks are compared at once
_PICKLE = lazy(rb"\x80[\x02-\x05]")
_RANK_IN_NAME = lazy(r"(\d{1,7})(?:\.(?:json|pickle|pkl|bin|trace))?$")
_RANKS = lazy(r"\d{1,7}")
_LIBRARIES = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py", "contextlib.py", "functional.py")
_UNNAMED = ("", "undefined")


class NoDumpError(ValueError):
    """Well-formed data, but no dump of a flight recorder."""


class Call(msgspec.Struct, frozen=True):
    """One call of a collective, or of a send or receive.

    Attributes:
        group: name of the process group.
        sequence: number of the collective within its group, from 1; of sends and receives a count of their own.
        operation: ``all_reduce``.
        sizes, dtypes: of the inputs, as far as they are recorded.
        state: ``scheduled``, ``started`` or ``completed``.
        at: the innermost place outside of PyTorch's own modules, ``train.py:77 in step``.
    """

    group: str
    sequence: int
    operation: str
    p2p: bool = False
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: str = "scheduled"
    at: str | None = None

    @property
    def shown(self) -> str:
        """The call in words: ``all_reduce of 4096 x 1024 BFloat16``."""
        size = " x ".join(map(str, self.sizes[0])) if self.sizes else ""
        kind = self.dtypes[0] if self.dtypes else ""
        return self.operation + (f" of {size} {kind}".rstrip() if size else "")


class Dump(msgspec.Struct, frozen=True):
    """What one rank's recorder held.

    Attributes:
        calls: in the order in which they were made; the recorder forgets the oldest.
        titles: description of each group by its name: ``tensor_parallel``.
        members: ranks of each group by its name, as far as recorded.
        completed: number of the last collective of each group that came to its end.
        nccl: version of NCCL, where it is recorded.
    """

    rank: int
    source: str
    calls: tuple[Call, ...] = ()
    titles: dict[str, str] = {}
    members: dict[str, tuple[int, ...]] = {}
    completed: dict[str, int] = {}
    nccl: str | None = None


def looks_like(head: bytes) -> bool:
    """Whether a file begins as a pickle, which no log does."""
    return _PICKLE.match(head) is not None


def rank_of(path: Path) -> int | None:
    """Return the rank in a file's name, which ends with it."""
    match = _RANK_IN_NAME.search(path.name)
    return None if match is None else int(match[1])


def read(path: Path, rank: int) -> Dump:
    """Read a dump, a pickle or JSON.

    Raises:
        ValueError: it is damaged or too large; `NoDumpError` if it is no dump of a flight recorder.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(BYTES_AT_MOST + 1)
    if len(data) > BYTES_AT_MOST:
        raise ValueError(f"larger than {BYTES_AT_MOST // 2**20} MiB")
    return decode(data, rank, str(path))


def decode(data: bytes, rank: int, source: str = "") -> Dump:
    """Return what the bytes of a dump say. Raises ValueError as `read` does."""
    content = unpickle.loads(data) if looks_like(data) else _json(data)
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise NoDumpError("it has no list of entries")
    entries = [entry for entry in content["entries"] if isinstance(entry, dict)]
    calls = [call for entry in entries if (call := _call(entry)) is not None]
    nccl = _text(content.get("nccl_version")) or _text(content.get("comm_lib_version"))
    titles, members = _groups(content.get("pg_config"))
    for entry in entries:
        name, title = _group_of(entry)
        if title not in _UNNAMED:
            titles[name] = title
    return Dump(
        rank=rank,
        source=source,
        calls=tuple(_latest(calls)),
        titles=titles,
        members=members,
        completed=_completed(content.get("pg_status")),
        nccl=nccl or None,
    )


def _latest(calls: list[Call]) -> list[Call]:
    left: dict[tuple[str, bool], int] = {}
    kept = []
    for call in reversed(calls):
        key = call.group, call.p2p
        left[key] = left.get(key, 0) + 1
        if left[key] <= _CALLS_KEPT:
            kept.append(call)
    return kept[::-1]


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"neither a pickle nor JSON ({error})") from error


def _call(entry: dict[str, Any]) -> Call | None:
    p2p = entry.get("is_p2p") is True
    sequence = entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id"))
    name = entry.get("profiling_name")
    if not isinstance(sequence, int) or not isinstance(name, str):
        return None
    state = _text(entry.get("state")) or "scheduled"
    return Call(
        group=_group_of(entry)[0],
        sequence=sequence,
        operation=name.partition(":")[2] or name,
        p2p=p2p,
        sizes=tuple(tuple(_integers(size)) for size in _list(entry.get("input_sizes"))),
        dtypes=tuple(map(_text, _list(entry.get("input_dtypes")))),
        # Some backends never note a start, but that they are done with it.
        state="completed" if entry.get("retired") is True and state == "scheduled" else state,
        at=_place(entry.get("frames")),
    )


def _group_of(entry: dict[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and len(group) == 2:
        return _text(group[0]), _text(group[1])
    return _text(entry.get("pg_id")), ""


def _groups(config: Any) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    titles: dict[str, str] = {}
    members: dict[str, tuple[int, ...]] = {}
    for key, group in config.items() if isinstance(config, dict) else ():
        if not isinstance(group, dict):
            continue
        name = _text(group.get("name")) or _text(key)
        title = _text(group.get("desc"))
        if title not in _UNNAMED:
            titles[name] = title
        ranks = group.get("ranks")
        found = _RANKS.findall(ranks) if isinstance(ranks, str) else _integers(ranks)
        if found:
            members[name] = tuple(sorted({int(rank) for rank in found}))
    return titles, members


def _completed(status: Any) -> dict[str, int]:
    if not isinstance(status, dict):
        return {}
    pairs = {_text(name): one.get("last_completed_collective") for name, one in status.items() if isinstance(one, dict)}
    return {name: number for name, number in pairs.items() if isinstance(number, int)}


def _place(frames: Any) -> str | None:
    """Return the innermost frame of the program itself; the first one is the innermost."""
    shown = []
    for frame in _list(frames):
        if isinstance(frame, dict) and isinstance(frame.get("filename"), str):
            file = frame["filename"].rpartition("/")[2]
            if not file.endswith(_LIBRARIES):
                return f"{file}:{_text(frame.get('line'))} in {_text(frame.get('name'))}"[:200]
            shown.append(f"{file}:{_text(frame.get('line'))}"[:200])
    return shown[0] if shown else None


def _text(value: Any) -> str:
    """Return a text or number as text, anything else as nothing: what is nested may be of any size."""
    return str(value)[:200] if isinstance(value, (str, int)) else ""


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _integers(value: Any) -> list[int]:
    return [one for one in _list(value) if isinstance(one, int)]

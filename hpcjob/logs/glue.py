"""Take apart lines that several processes wrote at once, so that no newline stands between them."""

from __future__ import annotations

from hpcjob.logs.lazy import lazy

# What begins a line wherever it stands: NCCL's prefix, torch's rank prefix, mpirun's tag, a traceback.
_STARTS = lazy(
    rb"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?"
    rb"[A-Za-z][A-Za-z0-9.-]{0,62}:\d{1,10}:\d{1,10} (?:\[\d{1,3}\] )?(?:\S{1,80} )?NCCL "
    rb"|\[(?:rank|default)\d{1,7}\]: ?"
    rb"|\[\d{1,4},\d{1,7}\]<std(?:out|err)>: ?"
    rb"|Traceback \(most recent call last\):"
    rb"|slurmstepd: error: |srun: error: |=>> PBS: "
)
_HINTS = (b"NCCL ", b"[rank", b"[default", b"]<std", b"Traceback (", b"slurmstepd: ", b"srun: ", b"=>> PBS")
_PREFIX_BYTES = 120


def unglue(data: bytes) -> list[tuple[int, bytes]]:
    """Return the parts of a line that began as lines of their own, each with its place in the line."""
    hints = [hint for hint in _HINTS if hint in data]
    if not hints or (sum(map(data.count, hints)) < 2 and not any(data.find(hint) > _PREFIX_BYTES for hint in hints)):
        return [(0, data)]
    starts = [0]
    for match in _STARTS.finditer(data):
        # A start within the prefixes of the part before belongs to it: '[1,3]<stderr>:[rank3]: Traceback'.
        if match.start() > starts[-1] and not _is_prefix(data[starts[-1] : match.start()]):
            starts.append(match.start())
    return [(start, data[start:end]) for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


_ONLY_PREFIXES = lazy(
    rb"(?:\s|\[(?:rank|default)\d{1,7}\]:|\[\d{1,4},\d{1,7}\](?:\[[^\]]{1,255}\])?<\w+>:|\d{1,7}:|[A-Za-z0-9][\w.-]{0,252}:"
    rb"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:?|\[[A-Z][^\]]{0,60}\]|\w+:)*"
)


def _is_prefix(data: bytes) -> bool:
    return len(data) <= _PREFIX_BYTES and _ONLY_PREFIXES.fullmatch(data) is not None

"""Take apart lines that several processes wrote at once, so that no newline stands between them."""

from __future__ import annotations

from hpcjob.logs.lazy import lazy

# What begins a line wherever it stands: NCCL's prefix, torch's rank prefix, mpirun's tag, a traceback.
_STARTS = lazy(
    rb"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?"
    rb"[A-Za-z][A-Za-z0-9.-]{0,62}:\d{1,10}:\d{1,10} (?:\[\d{1,3}\] )?(?:\S{1,80} )?(?:\(\w{1,80}\) )?NCCL "
    rb"|\[(?:rank|default)\d{1,7}\]: ?"
    rb"|\[\d{1,4},\d{1,7}\]<std(?:out|err)>: ?"
    rb"|Traceback \(most recent call last\):"
    rb"|slurmstepd(?:-[\w.-]{1,253})?: error: |srun: error: |=>> PBS: "
    rb"|(?:(?<=\})|(?<=\} ))\{(?=['\"])"  # entries of the Hugging Face Trainer, and JSON
    rb"|\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\] error: "  # slurmstepd from Slurm 25.05 on
)
_HINTS = (b"NCCL ", b"[rank", b"[default", b"]<std", b"Traceback (", b"slurmstepd", b"srun: ", b"] error: ", b"=>> PBS")
_JOINTS = (b"}{", b"} {")
"""What stands only where lines are joined."""
_PREFIX_BYTES = 120
_TRACEBACK = b"Traceback"
# What loggers write before each line of a traceback: 'ERROR [run.py:12] ', '(worker_7) : ', 'trainer-1  | '.
_HEADER_ENDS = b"]):|>-"


def unglue(data: bytes) -> list[tuple[int, bytes]]:
    """Return the parts of a line that began as lines of their own, each with its place in the line."""
    hints = [hint for hint in _HINTS if hint in data]
    joined = b"}" in data and any(joint in data for joint in _JOINTS)
    if not joined and (
        not hints or (sum(map(data.count, hints)) < 2 and not any(data.find(hint) > _PREFIX_BYTES for hint in hints))
    ):
        return [(0, data)]
    starts = [0]
    for match in _STARTS.finditer(data):
        before = data[starts[-1] : match.start()]
        # A start within the prefixes of the part before belongs to it: '[1,3]<stderr>:[rank3]: Traceback'.
        if before and not _is_prefix(before) and not (match[0].startswith(_TRACEBACK) and _is_header(before)):
            starts.append(match.start())
    return [(start, data[start:end]) for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


_ONLY_PREFIXES = lazy(
    rb"(?:\s|\[\d{1,9}\](?= )|[A-Za-z][\w.-]{0,100}/\d{1,5}(?= )"
    rb"|\([\w.<>:-]{1,80}(?: pid=\d{1,10})?(?:, ip=[\w.:-]{1,64})?\) "
    rb"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}|\[(?:rank|default)\d{1,7}\]:"
    rb"|\[\d{1,4},\d{1,7}\](?:\[[^\]]{1,255}\])?<\w+>:|\d{1,7}:|[A-Za-z0-9][\w.-]{0,252}:"
    rb"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:?|\[[A-Z][^\]]{0,60}\]|\w+:)*"
)


def _is_prefix(data: bytes) -> bool:
    return len(data) <= _PREFIX_BYTES and _ONLY_PREFIXES.fullmatch(data) is not None


def _is_header(data: bytes) -> bool:
    text = data.rstrip(b" ")
    return len(text) < len(data) and text[-1:] in _HEADER_ENDS

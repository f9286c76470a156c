"""From bytes to lines of clean text, each with what its prefixes say about host, rank, process and time.

Two steps, both free of I/O: `Splitter` cuts a stream of byte chunks into lines, whatever the cuts of the chunks, and
`LineParser` turns the bytes of a line into a `Line`. Prefixes understood, also several on one line:

=====================  ==========================================  ============================
written by             looks like                                  says
=====================  ==========================================  ============================
pdsh, ssh loops        ``node01: text``                            host
srun --label           ``3: text``, ``03: text``                   rank
torch                  ``[rank3]: text``                           rank
torchrun --tee         ``[default3]:text``                         local rank
mpirun --tag-output    ``[1,3]<stderr>:text``                      rank, stream
NCCL                   ``node01:100:101 [0] NCCL INFO text``       host, process
loggers                ``[2024-05-01 10:00:00,123] text``          time
syslog                 ``May  1 10:00:00 node01 kernel: text``     host
dmesg                  ``[ 1234.567890] text``
Ray                    ``(Worker pid=12, ip=10.0.0.1) text``       host, process
kubectl logs --prefix  ``[pod/trainer-0/main] text``               host
MPICH, Intel MPI -l    ``[3] text``                                rank, once NCCL's lines show that it is one
accelerate test        ``stderr: text``                            stream
Open MPI, UCX          ``[node01:1234] text``                      host; stays in the text
PALS mpiexec -l        ``node01.site.org 3: text``                 host, rank
journald               ``May  1 10:00:00 node01 train[12]: text``  host
Docker's json-file     ``{"log":"text\\n","stream":"stderr"}``      stream, time; the text alone is kept
torchx                 ``trainer/0 [rank3]: text``                 (nothing more)
SGLang                 ``[2025-05-01 10:00:00 TP3] text``           rank, time
CloudWatch             ``  | 2024-11-28T07:42:11.526Z | text``      time
mpirun with timestamp  ``Fri Aug 11 12:31:45 2023[1,3]<stdout>:``  time
=====================  ==========================================  ============================
"""

from __future__ import annotations

import re

import msgspec

from hpcjob.logs.prefixes import (
    CRAY_NODE,
    DOCKER,
    OF_A_LINE,
    OF_A_RANK,
    PREFIX,
    PREFIXES_AT_MOST,
    STEPD,
    is_host,
    iso,
    unwrapped,
)

LINE_LIMIT_BYTES = 512 * 1024
"""Bytes of a line that are kept; the rest of a longer one is dropped, so that memory stays bounded."""


class Line(msgspec.Struct, frozen=True):
    """One line of a log.

    Attributes:
        text: the line without prefixes, colour codes, control characters and overwritten parts (progress bars).
        prefix: the prefixes as they stood before the text; ``prefix + text`` is the line to show.
        source: path of the file, as given.
        offset: where the line starts in the file, in bytes.
        number: number of the line in the file from 1, where the file is read from its start; else 0.
        pid: process id, where the prefix of NCCL or Ray tells it.
    """

    text: str
    prefix: str = ""
    source: str = ""
    offset: int = 0
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    stream: str | None = None
    time: str | None = None
    number: int = 0

    @property
    def shown(self) -> str:
        """The whole line, prefixes included."""
        return self.prefix + self.text


class Splitter:
    """Cut a stream of chunks into lines; the result does not depend on where the chunks were cut.

    A line ends at ``\\n``. Of parts separated by ``\\r`` the last that is not empty stays, as on a terminal. Memory is
    bounded by the chunk plus `LINE_LIMIT_BYTES`.

    Args:
        offset: position in the file of the first byte that will be fed.
        skip_first: drop the first line, of which only the end will be seen.
    """

    def __init__(self, offset: int = 0, *, skip_first: bool = False) -> None:
        self._start = offset  # of the unfinished line
        self._end = offset  # of what was fed
        self._carry = b""  # the unfinished line, settled
        self._skip = skip_first

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that ``chunk`` completes, as (offset in the file, bytes)."""
        first_end = chunk.find(b"\n")
        chunk_start, self._end = self._end, self._end + len(chunk)
        if first_end < 0:
            self._carry = _settle(self._carry + chunk, keep_open=True)
            return []
        last_end = chunk.rfind(b"\n")
        block = self._carry + chunk[:last_end]
        start, self._start = self._start, chunk_start + last_end + 1
        self._carry = _settle(chunk[last_end + 1 :], keep_open=True)
        skip, self._skip = self._skip, False
        pieces = block.split(b"\n")
        if b"\r" in block or len(block) > LINE_LIMIT_BYTES:
            settled = [_settle(piece) for piece in pieces]
        else:
            settled = pieces
        lines = [(start, settled[0])]
        # The carried part may have been shortened, so the second line's offset is counted from the chunk.
        position = chunk_start + first_end + 1
        for piece, text in zip(pieces[1:], settled[1:], strict=True):
            lines.append((position, text))
            position += len(piece) + 1
        return lines[1:] if skip else lines

    @property
    def unfinished(self) -> bytes:
        """What there is of a line whose end has not come."""
        return self._carry

    def finish(self) -> list[tuple[int, bytes]]:
        """Return the line that no newline ended, if there is one, and start anew after it."""
        start, carry, skip = self._start, self._carry, self._skip
        self._start, self._carry, self._skip = self._end, b"", False
        return [(start, _settle(carry))] if carry and not skip else []


def _settle(data: bytes, *, keep_open: bool = False) -> bytes:
    """Return the part of a line that is seen in the end; with ``keep_open`` more of the line may still be appended."""
    if data.startswith(b"\0"):
        data = data.lstrip(b"\0")  # a file that was cut while its writer went on begins with a hole
    if b"\r" in data:
        stripped = data.rstrip(b"\r")
        ended = len(stripped) < len(data)
        data = stripped[stripped.rfind(b"\r") + 1 :][:LINE_LIMIT_BYTES]
        if keep_open and ended:
            return data + b"\r"  # what follows begins a new part
    return data[:LINE_LIMIT_BYTES]


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def clean(data: bytes) -> str:
    """Return one line's bytes as text that is safe to print: no colour codes, no control characters but tabs.

    Bytes that are not UTF-8 become U+FFFD.
    """
    text = data.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return _CONTROL.sub("", _ANSI.sub("", text))


class LineParser:
    """Turn the bytes of lines of one file into `Line` objects.

    Args:
        source: path to report.
        rank: rank whose own file this is; then ``3: `` at a line's start is text, not a rank.
        host: host whose own file this is, for lines that name none.
        hosts: names known to be hosts, shared between files; NCCL's prefixes add to it. A name that is not known
            counts as one only if it looks like one (``node01``, ``gpu-3.cluster``, ``10.0.0.1``), since ``Error: ``
            and the like look the same.
    """

    def __init__(
        self, source: str, *, rank: int | None = None, host: str | None = None, hosts: set[str] | None = None
    ) -> None:
        self._source = source
        self._rank = rank
        self._host = host
        self._hosts = set() if hosts is None else hosts
        self._bracketed = False

    def parse(self, offset: int, data: bytes, number: int = 0) -> Line:
        """Return the line that starts at byte ``offset`` of the file and is its line ``number``."""
        text = clean(data)
        host: str | None = None
        rank, local_rank, pid = self._rank, None, None
        stream: str | None = None
        time: str | None = None
        if text.startswith(DOCKER) and (kept := unwrapped(text)) is not None:
            text, stream, time = clean(kept[0].encode()), kept[1], kept[2]
        of_kernel = False
        position = 0
        for _ in range(PREFIXES_AT_MOST):
            match = PREFIX.match(text, position)
            if match is None:
                break
            kind = match.lastgroup
            if kind == "stream":
                rank, stream = int(match["mpi_rank"]), match["stream"]
            elif kind == "role_rank":
                if match["role"] == "rank":
                    rank = int(match["role_rank"])
                else:
                    local_rank = int(match["role_rank"])
            elif kind == "srun_rank":
                if self._rank is not None:
                    break
                rank = int(match["srun_rank"])
            elif kind == "time":
                time = match["time"].replace(",", " ", 1) if match["time"][10] == "," else match["time"]
            elif kind in ("american", "ctime"):
                time = iso(match[kind])
            elif kind in ("syslog_host", "journal_host"):
                host = match[kind]
            elif kind == "syslog":
                of_kernel = True
            elif kind == "tp_rank":
                time = match["time"]
                if not match["groups"]:  # else ranks are counted anew in each group
                    rank = int(match["tp_rank"])
            elif kind in ("column", "replica"):
                pass
            elif kind == "numbered":
                if not self._is_numbered(match["numbered_host"]):
                    break
                host, rank = match["numbered_host"], int(match["numbered"])
            elif kind == "ray":
                host = host or match["ray_host"]
                pid = None if match["ray_pid"] is None else int(match["ray_pid"])
            elif kind == "pod":
                host = host or match["pod"]
            elif kind == "bracketed":
                if not self._is_rank(text, match.end()):
                    break
                if self._bracketed and self._rank is None and not OF_A_LINE.match(text, match.end()):
                    rank = int(match["bracketed"])
            elif kind == "stdio":
                stream = match["stdio"]
            elif kind == "native":
                if host is None and self._is_host(match["native_host"]):
                    host = match["native_host"]
                break  # rules know these lines with it
            elif kind == "pid":
                host, pid = match["nccl_host"], int(match["pid"])
                self._hosts.add(host)
                position = match.end()
                break  # always the innermost
            elif host is None and not of_kernel and self._is_host(match["host"]):
                host = match["host"]
            else:
                if match["host"].startswith(STEPD):  # Slurm names the node, and the line stays as it is
                    host = host or match["host"].removeprefix(STEPD)
                break
            position = match.end()
        return Line(
            text=text[position:],
            prefix=text[:position],
            source=self._source,
            offset=offset,
            host=host or self._host,
            rank=rank,
            local_rank=local_rank,
            pid=pid,
            stream=stream,
            time=time,
            number=number,
        )

    def _is_rank(self, text: str, position: int) -> bool:
        """Whether the number in brackets before a place is a prefix: it stays one once it was."""
        if OF_A_RANK.match(text, position) is not None:
            self._bracketed = True
        return self._bracketed or OF_A_LINE.match(text, position) is not None

    def _is_host(self, name: str) -> bool:
        return name in self._hosts or is_host(name)

    def _is_numbered(self, name: str) -> bool:
        """Whether a name before a number is a host: ``Step 3: `` is none, so without a domain it must be known."""
        return name in self._hosts or ("." in name and is_host(name)) or CRAY_NODE.fullmatch(name) is not None

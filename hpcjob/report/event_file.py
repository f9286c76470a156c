"""TensorBoard's event files, written without TensorBoard: scalars in the framing of TFRecord.

A record is the length of its data (8 bytes, little-endian), the masked CRC-32C of these 8 bytes, the data, and the
masked CRC-32C of the data. The data is a protocol-buffer message ``Event``: 1 wall_time (double), 2 step (int64),
3 file_version (string), 5 summary; ``Summary``: 1 value (repeated); its ``Value``: 1 tag (string), 2 simple_value
(float). Sources: TensorFlow's util/event.proto, framework/summary.proto, lib/io/record_writer.h in tensorflow/core.
The same tags as neoxlite and GPT-NeoX write are used, so that exported and live runs share charts.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from hpcjob.report.export import rows
from hpcjob.report.quantities import COLUMN, NAMES, QUANTITIES, TIME_S
from hpcjob.report.runs import Run
from hpcjob.report.tables import Floats
from neoxlite.common.files import replacing

FILE_NAME = "events.out.tfevents.0000000000.hpcjob"
"""The same each time: a second export replaces the first."""
_HELD_OUT = {"validation_loss": "validation/lm_loss", "test_loss": "test/lm_loss"}
_FLOAT_MOST = 3.4028234e38
_NAME_BYTES_AT_MOST = 200


def write_run(run: Run, folder: Path) -> Path:
    """Write a run into its event file in ``folder``, which is made, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    with replacing(path) as file:
        _write(run, file)
    return path


def folder_names(names: Sequence[str]) -> list[str]:
    """Return a folder's name for each run's, different ones: what leads elsewhere or is no name is replaced."""
    found: list[str] = []
    for name in names:
        clean = "".join(char if char.isprintable() and char not in '/\\:*?"<>|' else "_" for char in name).strip(". ")
        clean = clean.encode("utf-8", "replace")[:_NAME_BYTES_AT_MOST].decode(errors="ignore") or "run"
        again = (f"{clean}-{number}" for number in itertools.count(2))
        found.append(clean if clean not in found else next(one for one in again if one not in found))
    return found


def _write(run: Run, file: IO[bytes]) -> None:
    tags = {one.name: (one.tag, one.tag_scale) for one in QUANTITIES}
    times = wall_times(run)
    now = float(times[0]) if len(times) else 0.0
    file.write(record(_double(1, now) + _bytes(3, b"brain.Event:2")))
    place = 0
    for row in rows(run):
        if place < len(times) and row["iteration"] == run.table.steps[place]:
            now = float(times[place])
            place += 1
        scalars = {tags[name][0]: row[name] * tags[name][1] for name in NAMES if name in row}
        scalars.update((tag, row[name]) for name, tag in _HELD_OUT.items() if name in row)
        if scalars:
            file.write(record(event(now, row["iteration"], scalars)))


def wall_times(run: Run) -> Floats:
    """Return a time for each row [rows] in seconds since 1970.

    Where the log tells times they are taken. Else each row stands the time of its iterations after the row before it,
    from 0 on: durations are right, the day is 1970.
    """
    table = run.table
    told = table.told[:, TIME_S]
    if told.any():
        return np.asarray(np.interp(table.steps, table.steps[told], table.values[told, TIME_S]), np.float64)
    column = COLUMN["iteration_time_ms"]
    each = np.where(table.told[:, column], table.values[:, column] / 1000, 0.0)
    each = np.where(np.isfinite(each), each, 0.0)
    return np.cumsum(each * np.diff(table.steps, prepend=0 if len(table) else []))


def event(wall_time_s: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Return an ``Event`` with one value a tag."""
    values = b"".join(_bytes(1, _bytes(1, tag.encode()) + b"\x15" + _float(value)) for tag, value in scalars.items())
    return _double(1, wall_time_s) + b"\x10" + _varint(step) + _bytes(5, values)


def record(data: bytes) -> bytes:
    """Return ``data`` in the framing of TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _float(value: float) -> bytes:
    if abs(value) > _FLOAT_MOST and abs(value) != float("inf"):
        value = float("inf") if value > 0 else float("-inf")
    return struct.pack("<f", value)


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _crc_table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        for _ in range(8):
            index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
        table.append(index)
    return tuple(table)


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

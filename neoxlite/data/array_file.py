"""Integer arrays in one file, written whole and mapped by every process: consecutive ``.npy`` blocks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from neoxlite.common.files import replacing

_LOG = logging.getLogger(__name__)

Array = npt.NDArray[np.integer[Any]]


def write_arrays(path: Path, arrays: Sequence[Array]) -> bool:
    """Write the arrays, whole or not at all. Return whether that worked; if not, the log says why."""
    try:
        with replacing(path) as file:
            for array in arrays:
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        _LOG.warning("%s cannot be written (%s); every process keeps its own index in memory", path, error.strerror)
        return False
    return True


def map_arrays(path: Path, count: int) -> list[Array] | None:
    """Map ``count`` arrays; None where there is no such file, or it is cut off or damaged, which the log then says."""
    try:
        with path.open("rb") as file:
            arrays = [_map_array(path, file) for _ in range(count)]
            if file.tell() != path.stat().st_size:
                raise ValueError("its length does not fit its arrays")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warn_damaged(path, str(error))
        return None
    return arrays


def warn_damaged(path: Path, reason: str) -> None:
    """Say in the log that a file is damaged and not used."""
    _LOG.warning("%s is damaged (%s) and will be made again", path, reason)


def _map_array(path: Path, file: IO[bytes]) -> Array:
    """Map the ``.npy`` block at the file's position and move behind it. Raises ValueError if it is not whole."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an array of .npy version 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "iu":
        raise ValueError(f"dtype {dtype} where integers belong")
    array: Array = np.memmap(path, dtype, mode="r", offset=file.tell(), shape=shape)
    file.seek(array.nbytes, 1)
    return array

"""torch's .pt files of others, read as data and never as code.

A pickle can name any function and call it. Only torch's own allow-list of tensors and plain data passes
(``weights_only=True``), plus the few names that GPT-NeoX's files carry besides; those become inert objects here, and
nothing of DeepSpeed or numpy is called.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from neoxlite.convert.weight import Weight
from neoxlite.errors import CheckpointError

_REMAP_AFTER_BYTES = 16 << 20


class Inert:
    """Stands for an object of a class that is not needed: random states, a loss scaler."""

    def __init__(self, *args: Any, **state: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inert)

    __hash__ = object.__hash__


class FragmentAddress:
    """Where a parameter's elements lie in a flat partition (deepspeed/utils/tensor_fragment.py)."""

    numel: int
    start: int


_INERT_NAMES = (
    "_codecs.encode",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.dtype",
    "numpy.ndarray",
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.runtime.zero.offload_config.OffloadDeviceEnum",
)
_ALLOWED: list[Any] = [
    *((Inert, name) for name in _INERT_NAMES),
    (FragmentAddress, "deepspeed.utils.tensor_fragment.fragment_address"),
    (set, "builtins.set"),
]


class PickledFile:
    """A .pt file. Its tensors are mapped, and one file at a time is: mapped pages count as memory in use.

    Raises:
        CheckpointError: the file is missing or damaged, or holds something else than data.
    """

    _mapped: ClassVar[PickledFile | None] = None

    def __init__(self, path: Path):
        self.path = path
        self._content: Any = None
        self._touched = 0

    def content(self) -> Any:
        """Return what is in the file; do not keep it."""
        if PickledFile._mapped is not self or self._touched > _REMAP_AFTER_BYTES:
            if PickledFile._mapped is not None:
                PickledFile._mapped._content = None
            self._content, self._touched = load_data(self.path), 0
            PickledFile._mapped = self
        return self._content

    def check(self) -> None:
        """Read the file from end to end. Raises CheckpointError if it is damaged as far as its format can tell.

        torch's format is a ZIP archive, whose entries have checksums; the one before it has none.
        """
        self.content()
        if not zipfile.is_zipfile(self.path):
            return
        try:
            with zipfile.ZipFile(self.path) as archive:
                wrong = archive.testzip()
        except (OSError, zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(f"{self.path} is damaged: {error}", hint="copy it again") from None
        if wrong is not None:
            raise CheckpointError(f"{self.path} is damaged: {wrong} has changed (checksum)", hint="copy it again")

    def weight(self, *keys: Any) -> Weight:
        """Return the tensor under a path of keys."""
        tensor = self._tensor(keys)

        def rows(start: int, end: int) -> Tensor:
            found = self._tensor(keys)[start:end].clone()
            self._touched += found.nbytes
            return found

        return Weight(tuple(tensor.shape), tensor.dtype, rows)

    def _tensor(self, keys: tuple[Any, ...]) -> Tensor:
        value = self.content()
        for key in keys:
            value = value[key] if isinstance(value, Mapping | list | tuple) else None
        if not isinstance(value, Tensor) or value.dim() == 0:
            raise CheckpointError(
                f"{self.path}: {'.'.join(map(str, keys))} is not a tensor", hint="copy the file again"
            )
        return value.detach()


def load_data(path: Path) -> Any:
    """Return the content of a .pt file with its tensors mapped into memory, where its format allows that.

    Raises:
        CheckpointError: see `PickledFile`.
    """
    try:
        with path.open("rb") as file:
            mapped = file.read(4) == b"PK\x03\x04"  # torch's format since 1.6
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint="copy it again") from None
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_ALLOWED):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", mmap=mapped or None, weights_only=True)
    except pickle.UnpicklingError as error:
        raise _refused(path, str(error)) from None
    except Exception as error:  # torch and pickle raise all kinds for a damaged file
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path} is damaged: {first[:160]}", hint="copy it again") from None


def _refused(path: Path, text: str) -> CheckpointError:
    """Return the error of a file that torch's own reader has turned down."""
    marks = ("GLOBAL ", "Unsupported global: ", "Unsupported class ", "Trying to ")
    mark = next((mark for mark in marks if mark in text), None)
    if mark is None:
        first = next((line for line in reversed(text.splitlines()) if line.strip()), "no pickle")
        return CheckpointError(f"{path} is damaged: {first.strip()[:160]}", hint="copy it again")
    what = text.partition(mark)[2].split(" was not")[0].splitlines()[0].strip()
    return CheckpointError(
        f"{path} holds more than tensors and plain data: {what[:120]}",
        hint="it was not read: such a file can run any program. Take checkpoints from a source you trust",
    )

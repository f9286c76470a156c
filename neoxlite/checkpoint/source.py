"""What a run goes on from: a checkpoint of ours, or one that GPT-NeoX wrote, which is read where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from neoxlite.checkpoint.load import load_master_weights, load_optimizer, load_weights, verify
from neoxlite.checkpoint.manifest import MANIFEST, Manifest
from neoxlite.common.paths import exists
from neoxlite.parallel.topology import Topology

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


class Source(Protocol):
    """A checkpoint that can fill an engine of any layout; every rank calls the methods together."""

    @property
    def training(self) -> dict[str, Any]:
        """The state of training, as in a manifest."""

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know about it, one line each."""

    def verify(self, topology: Topology) -> None:
        """Raise CheckpointError, the same on every rank, if the files are damaged."""

    def load_weights(self, engine: Any) -> None:
        """Fill this rank's parameters. Raises CheckpointError if they are another model's."""

    def load_optimizer(self, engine: Any) -> None:
        """Fill this rank's optimizer state. Raises CheckpointError if some is missing."""

    def load_master_weights(self, engine: Any) -> None:
        """Fill this rank's fp32 master weights alone, where the engine has some, from the weights in the files."""


class OwnSource:
    """A folder that neoxlite wrote."""

    notes: Sequence[str] = ()

    def __init__(self, folder: Path):
        self._folder = folder
        self._manifest = Manifest.read(folder)

    @property
    def training(self) -> dict[str, Any]:
        """See `Source`."""
        return self._manifest.training

    def verify(self, topology: Topology) -> None:
        """Compare sizes and checksums."""
        verify(self._folder, self._manifest, topology)

    def load_weights(self, engine: Any) -> None:
        """See `Source`."""
        load_weights(self._folder, engine.module, engine.topology)

    def load_optimizer(self, engine: Any) -> None:
        """See `Source`."""
        load_optimizer(self._folder, engine, self.training["optimizer_step"])

    def load_master_weights(self, engine: Any) -> None:
        """See `Source`."""
        load_master_weights(self._folder, engine)


def open_source(folder: Path, cfg: NeoxConfig) -> Source:
    """Return the checkpoint in ``folder``.

    Raises:
        CheckpointError: it is damaged, of an unknown kind, or not of this configuration.
    """
    if _is_ours(folder):
        return OwnSource(folder)
    from neoxlite.convert.in_place import NeoxSource

    return NeoxSource.open(folder, cfg)


def saved_place(folder: Path, cfg: NeoxConfig) -> dict[str, Any]:
    """Return what a checkpoint says of its place in the data, without a look at its tensors.

    Raises:
        CheckpointError: it is damaged, or of an unknown kind.
    """
    if _is_ours(folder):
        return Manifest.read(folder).training
    from neoxlite.convert.neox_model import position_of
    from neoxlite.convert.upstream import Upstream

    return dict(position_of(Upstream.open(folder), cfg, 0))


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder is ours, or no checkpoint of GPT-NeoX: then the message about it is ours."""
    if exists(folder / MANIFEST):
        return True
    from neoxlite.convert.upstream import is_upstream

    return not is_upstream(folder)

"""What ``evaluate`` and ``generate`` share: a configuration that may be left out, and the checkpoint to load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neoxlite.errors import CheckpointError

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def optional_config(config: tuple[str, ...], conf_dir: str | None) -> NeoxConfig | None:
    """Return the configuration of the files, None if no file is given."""
    if not config:
        return None
    from neoxlite.config import load_config

    return load_config(config, conf_dir)


def load_folder(load: str | None, cfg: NeoxConfig | None, iteration: int | None) -> Path:
    """Return the checkpoint folder that --load, or else load of the configuration, means.

    Raises:
        CheckpointError: neither is given, or there is no checkpoint.
    """
    where = load or (cfg.load if cfg is not None else None)
    if not where:
        raise CheckpointError("no checkpoint is given", hint="give --load DIR", exit_code=2)
    from neoxlite.checkpoint.restore import folder_of

    return folder_of(Path(where), iteration)

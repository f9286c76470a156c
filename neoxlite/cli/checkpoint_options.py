"""What ``evaluate`` and ``generate`` share: a configuration that may be left out, and the checkpoint to load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neoxlite.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from neoxlite.config import NeoxConfig


def optional_config(
    config: tuple[str, ...], conf_dir: str | None, assignments: tuple[str, ...] = ()
) -> NeoxConfig | None:
    """Return the configuration of the files, None if no file is given.

    Raises:
        ConfigError: a mistake in the files, or assignments without a file.
    """
    if not config:
        if assignments:
            raise ConfigError("--set overrides a key of CONFIG, and no CONFIG is given", hint="give the .yml files")
        return None
    from neoxlite.config import load_config, parse_assignments

    return load_config(config, conf_dir, parse_assignments(assignments))


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

"""Shared by the tests of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neoxlite.config import NeoxConfig, load_config
from tests.neoxlite.config.samples import Load, minimal_text


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load the small configuration with keys changed; ``world_size`` and the like go to `load_config`."""

    def loader(
        world_size: int | None = None, allow_unsupported: bool = False, launched: bool = False, **changes: Any
    ) -> NeoxConfig:
        path = tmp_path / "small.yml"
        path.write_text(minimal_text(**changes), encoding="utf-8")
        return load_config(path, world_size=world_size, allow_unsupported=allow_unsupported, launched=launched)

    return loader

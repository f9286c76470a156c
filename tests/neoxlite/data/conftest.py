"""Golden files and small datasets for the data tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neoxlite.data.writer import DatasetWriter

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the folder of reference data."""
    return GOLDEN


@pytest.fixture(scope="session")
def golden_json() -> Callable[[str], Any]:
    """Return a reader of a golden JSON file."""

    def read(name: str) -> Any:
        return json.loads((GOLDEN / name).read_text(encoding="utf-8"))

    return read


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str, str], str]:
    """Return a function that copies a golden dataset under a name and returns its prefix."""

    def copy(name: str, to: str) -> str:
        for suffix in ("bin", "idx"):
            shutil.copyfile(GOLDEN / "datasets" / f"{name}.{suffix}", tmp_path / f"{to}.{suffix}")
        return str(tmp_path / to)

    return copy


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes documents as a dataset and returns its prefix."""

    def write(documents: list[list[int]], name: str = "set", dtype: str = "uint16") -> str:
        with DatasetWriter(tmp_path / name, dtype) as writer:
            for document in documents:
                writer.add_document(document)
        return str(tmp_path / name)

    return write

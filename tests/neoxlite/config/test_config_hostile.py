"""Whatever stands in a file, the answer is a configuration or a message; never another exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import ConfigError, NeoxConfig, key_table, load_config
from neoxlite.config.reader import shipped_folder
from tests.neoxlite.config.samples import minimal_text

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, 2, 64, 10**6, 2**62, 10**40])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1e-5", "1e400", "true", "all", "global", "Adam", "type", "fp32", "データ\n"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "params", "stage", "enabled", "lr", "betas", "eps", "grad_accum_dtype"])
            | st.integers(0, 2),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the small configuration."""
    path = tmp_path_factory.mktemp("hostile") / "small.yml"
    path.write_text(minimal_text(), encoding="utf-8")
    return path


def _use(cfg: NeoxConfig) -> None:
    """Do the arithmetic that the command and the planner do."""
    padded = cfg.padded_vocab_size(1000)
    cfg.parameter_count(padded)
    cfg.flops_per_iteration(padded)
    if cfg.pipe_parallel_size <= 16:
        cfg.pipeline_partition(max(1, cfg.pipe_parallel_size), padded)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(key=st.sampled_from(sorted(key_table())), value=_VALUES)
def test_any_value_of_any_key(small: Path, key: str, value: Any) -> None:
    """Any YAML value for any of the 321 keys resolves and can be computed with, or is refused on one line."""
    try:
        _use(load_config(small, overrides={key: value}, world_size=2, allow_unsupported=True))
    except ConfigError as error:
        message = error.message
    else:
        return
    assert "\n" not in message


@pytest.mark.parametrize("name", ["2-7B.yml", "quickstart.yml"])
def test_interrupted_writes(name: str, tmp_path: Path) -> None:
    """A file cut anywhere, as a full disk leaves it: it loads, or is refused by its name; nothing else."""
    whole = (shipped_folder() / name).read_bytes()
    path = tmp_path / name
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        try:
            load_config(path)
        except ConfigError as error:
            message = error.message
        else:
            continue
        assert name in message or "not given" in message or "neither" in message

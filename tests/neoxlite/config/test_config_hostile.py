"""Whatever stands in a file, the answer is a configuration or a message; never another exception."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import ConfigError, key_table, load_config
from neoxlite.config.keys import block_table, old_key_table
from neoxlite.config.reader import shipped_folder
from tests.neoxlite.config.samples import MINIMAL, minimal_text
from tests.neoxlite.fuzz.targets import check_config, use_config

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


@settings(derandomize=True, deadline=None, max_examples=300)
@given(key=st.sampled_from(sorted(key_table())), value=_VALUES)
def test_any_value_of_any_key(small: Path, key: str, value: Any) -> None:
    """Any YAML value for any of the 321 keys resolves and can be computed with, or is refused on one line."""
    try:
        use_config(load_config(small, overrides={key: value}, world_size=2, allow_unsupported=True))
    except ConfigError as error:
        message = error.message
    else:
        return
    assert "\n" not in message


def _sections(text: str) -> list[int]:
    """Return where each line of ``text`` begins, in bytes: a section, a key or an item begins nowhere else."""
    return [0, *itertools.accumulate(len(line) for line in text.encode().splitlines(keepends=True))]


@pytest.mark.parametrize("name", ["2-7B.yml", "quickstart.yml", "mistral/7B.yml"])
def test_cut_at_every_line(name: str, tmp_path: Path) -> None:
    """A file cut where a line begins, and in the middle of each, as a full disk leaves it."""
    text = (shipped_folder() / name).read_text(encoding="utf-8")
    starts = _sections(text)
    for start, end in itertools.pairwise(starts):
        for length in (start, (start + end) // 2):
            check_config(tmp_path / "cut.yml", text.encode()[:length])


@pytest.mark.parametrize("name", ["125M.yml", "local_setup.yml"])
def test_flipped_bits(name: str, tmp_path: Path) -> None:
    """One bit of every 23rd byte flipped, each time another bit."""
    _flip(tmp_path, (shipped_folder() / name).read_bytes(), range(0, 100_000, 23))


@pytest.mark.full
@pytest.mark.parametrize("path", sorted(shipped_folder().rglob("*.yml")), ids=lambda path: path.stem)
def test_every_cut_and_flip(path: Path, tmp_path: Path) -> None:
    """Every shipped file cut at every byte, and with one bit of every byte flipped; of the smallest, every bit."""
    whole = path.read_bytes()
    for length in range(len(whole)):
        check_config(tmp_path / "cut.yml", whole[:length])
    for bit in range(8) if path.stem in ("quickstart", "local_setup") else [None]:
        _flip(tmp_path, whole, range(len(whole)), bit)


def _flip(folder: Path, whole: bytes, positions: range, bit: int | None = None) -> None:
    for number, position in enumerate(positions):
        if position >= len(whole):
            return
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (number % 8 if bit is None else bit)
        check_config(folder / "flipped.yml", bytes(damaged))


_YAML_MARKS = "ab:-[]{}#&*!|>'\"%@`,? \n\t0.\u3042"


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    data=st.binary(max_size=60) | st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,? \n\t0.\u3042", max_size=60).map(str.encode)
)
def test_any_bytes(small: Path, data: bytes) -> None:
    """Whatever the bytes of a file: no other exception than one that names it."""
    check_config(small.with_name("any.yml"), data)


_EDITS = st.lists(
    st.tuples(
        st.integers(0, 1700),
        st.integers(0, 20),
        st.text(_YAML_MARKS, max_size=6) | st.sampled_from([*key_table(), "<<: *a", "&a ", "!!int ", "\n---\n", "? "]),
    ),
    min_size=1,
    max_size=4,
)


def _edit(small: Path, edits: list[tuple[int, int, str]]) -> None:
    text = (shipped_folder() / "2-7B.yml").read_text(encoding="utf-8")
    for position, deleted, inserted in edits:
        text = text[:position] + inserted + text[position + deleted :]
    check_config(small.with_name("edited.yml"), text.encode())


@settings(derandomize=True, deadline=None, max_examples=150)
@given(edits=_EDITS)
def test_edited_files(small: Path, edits: list[tuple[int, int, str]]) -> None:
    """A real file with some places cut out and marks, keys and tags of YAML put in."""
    _edit(small, edits)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(derandomize=False, deadline=None, max_examples=50_000)
@given(edits=_EDITS)
def test_edited_files_at_length(small: Path, edits: list[tuple[int, int, str]]) -> None:
    """The same for some ten minutes, otherwise each time."""
    _edit(small, edits)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(key=st.sampled_from(sorted(block_table())), value=_VALUES)
def test_any_value_inside_a_block(small: Path, key: str, value: Any) -> None:
    """The same for every known key inside a block."""
    try:
        use_config(load_config(small, overrides={key: value}, world_size=2, allow_unsupported=True))
    except ConfigError as error:
        message = error.message
    else:
        return
    assert "\n" not in message


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(derandomize=True, deadline=None, max_examples=30_000)
@given(
    key=st.sampled_from(sorted([*key_table(), *block_table(), *old_key_table()])),
    value=_VALUES,
    other=st.sampled_from(sorted([*key_table(), *block_table(), *old_key_table()])),
    another=_VALUES,
)
def test_any_two_values(small: Path, key: str, value: Any, other: str, another: Any) -> None:
    """Any values of any two keys, among them keys inside blocks and of earlier releases."""
    try:
        overrides = {key: value, other: another}
        use_config(load_config(small, overrides=overrides, world_size=2, allow_unsupported=True))
    except ConfigError as error:
        message = error.message
    else:
        return
    assert "\n" not in message


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    keys=st.dictionaries(
        st.sampled_from([*old_key_table(), "activation", "intermediate_size", "hidden_size", "optimizer"]),
        _VALUES | st.sampled_from(["llama", "regular", "silu", "gelu", "row"]),
        min_size=1,
        max_size=4,
    )
)
def test_any_old_keys(small: Path, keys: dict[str, Any]) -> None:
    """Any values of keys of earlier releases, which overrides do not reach, with those that they are taken into."""
    text = yaml.safe_dump({**MINIMAL, **keys}, allow_unicode=True)
    check_config(small.with_name("old.yml"), text.encode())

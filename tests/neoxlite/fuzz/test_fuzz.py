"""The promises of the fuzz targets: on good files changed by hypothesis, and in the full tier by the guided search."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.neoxlite.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[3]
_FULL_S = 600
_HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
# Place (in 10,000ths of the file), bytes taken out, and a word of the target or any bytes put in.
_Edits = list[tuple[int, int, int | bytes]]
_EDITS = st.lists(
    st.tuples(st.integers(0, 9999), st.integers(0, 9), st.integers(0, 999) | st.binary(max_size=4)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Leave out the warnings of lines that are left out."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def _changed(name: str, seed: int, edits: _Edits) -> bytes:
    seeds, words = _SEEDS[name], TARGETS[name].words
    data = seeds[seed % len(seeds)]
    for place, taken, put in edits:
        at = place * len(data) // 10_000
        data = data[:at] + (put if isinstance(put, bytes) else words[put % len(words)]) + data[at + taken :]
    return data


_SEEDS = {name: target.seeds() for name, target in TARGETS.items()}


def _search(name: str, folder: Path, examples: int, *, derandomize: bool) -> None:
    @settings(derandomize=derandomize, deadline=None, max_examples=examples, database=None)
    @given(st.integers(0, 999), _EDITS)
    def check(seed: int, edits: _Edits) -> None:
        TARGETS[name].check(folder, _changed(name, seed, edits))

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str, tmp_path: Path) -> None:
    """The good files themselves keep the promises."""
    for seed in _SEEDS[name]:
        TARGETS[name].check(tmp_path, seed)


@pytest.mark.parametrize("name", TARGETS)
def test_some_changes(name: str, tmp_path: Path) -> None:
    """Some changed files."""
    _search(name, tmp_path, 40, derandomize=True)


def _damaged(seed: bytes) -> Iterator[bytes]:
    """Yield a file cut at every byte, and with a bit of every byte flipped."""
    for place in range(len(seed)):
        yield seed[:place]
        yield seed[:place] + bytes([seed[place] ^ (1 << place % 8)]) + seed[place + 1 :]


def test_lines_cut_and_flipped_anywhere(tmp_path: Path) -> None:
    """JSON lines of every shape, cut at every byte and with a bit of every byte flipped."""
    for seed in _SEEDS["jsonl"][:2]:
        for data in _damaged(seed):
            TARGETS["jsonl"].check(tmp_path, data)


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_every_cut_and_flip(name: str, tmp_path: Path) -> None:
    """The same for every good file of every kind that is not long; test_config_hostile.py has the long ones."""
    for seed in _SEEDS[name]:
        for data in _damaged(seed) if len(seed) < 1000 else ():
            TARGETS[name].check(tmp_path, data)


@pytest.mark.ci
@pytest.mark.parametrize("name", TARGETS)
def test_more_changes(name: str, tmp_path: Path) -> None:
    """The same for some seconds."""
    _search(name, tmp_path, 300, derandomize=True)


@pytest.mark.full
@pytest.mark.timeout(3 * _FULL_S)
@pytest.mark.parametrize("name", TARGETS)
def test_ten_minutes(name: str, tmp_path: Path) -> None:
    """Ten minutes of search guided by coverage, otherwise each time; without atheris fifty thousand changed files."""
    if not _HAS_ATHERIS:
        _search(name, tmp_path, 50_000, derandomize=False)
        return
    corpus = tmp_path / "corpus"
    command = [sys.executable, "-m", "tests.neoxlite.fuzz", name, "--seconds", str(_FULL_S), "--corpus", str(corpus)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert not list(corpus.glob("crash-*"))

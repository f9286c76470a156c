"""The cache of compiled templates: it only saves time, whatever happens to its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2.bccache
import pytest

from hpcjob.render import render
from tests.hpcjob.render.plans import plan

MAGIC = jinja2.bccache.bc_magic
PAYLOAD = 32 + len(MAGIC)
"""Where what jinja reads after its magic begins: behind a SHA-256."""

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "digest alone": lambda entry: entry[:32],
    "cut in the digest": lambda entry: entry[:7],
    "cut in the checksum": lambda entry: entry[: PAYLOAD + 3],
    "cut in the code": lambda entry: entry[: len(entry) // 2],
    "no pickle": lambda entry: entry[:PAYLOAD] + b"\xff" * 40,
    "a bit of the code": lambda entry: entry[:-400] + bytes([entry[-400] ^ 4]) + entry[-399:],
    "zeros after a crash": lambda entry: bytes(len(entry)),
    "jinja's own file": lambda entry: entry[32:],
    "words": lambda _: "学習\n".encode(),
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def entries(cache: Path) -> dict[Path, bytes]:
    """Return what is cached."""
    return {path: path.read_bytes() for path in cache.glob("hpcjob/*/*") if path.is_file()}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_is_compiled_anew(cache: Path, kind: str) -> None:
    """A full disk, a crash or a bad copy damages entries: the script is the same, and the entries are mended."""
    script = render(plan("lab"))
    whole = entries(cache)
    assert whole, "there is a cache"
    for path, entry in whole.items():
        path.write_bytes(DAMAGE[kind](entry))
    assert render(plan("lab")) == script
    assert entries(cache).keys() == whole.keys()
    assert all(len(entry) == len(whole[path]) for path, entry in entries(cache).items())
    assert render(plan("lab")) == script


def test_entries_that_cannot_be_read_or_written(cache: Path) -> None:
    """A folder stands where an entry should: nothing is cached, and nothing is left behind."""
    script = render(plan("lab"))
    for path in entries(cache):
        path.unlink()
        (path / "in the way").mkdir(parents=True)
    there = sorted(cache.glob("hpcjob/*/*"))
    assert render(plan("lab")) == script
    assert sorted(cache.glob("hpcjob/*/*")) == there


def test_an_entry_is_used(cache: Path) -> None:
    """What is in the cache is taken: nothing is written the second time."""
    render(plan("lab"))
    times = {path: path.stat().st_mtime_ns for path in entries(cache)}
    render(plan("lab"))
    assert {path: path.stat().st_mtime_ns for path in entries(cache)} == times

"""What makes the reader start quickly: patterns compiled when needed, rules kept between runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hpcjob.logs import rule_cache, rulebook
from hpcjob.logs.lazy import lazy
from hpcjob.template_cache import template_cache


def test_a_lazy_pattern_is_used_as_a_compiled_one() -> None:
    pattern, compiled = lazy(r"(?P<a>\d+)-x", re.IGNORECASE), re.compile(r"(?P<a>\d+)-x", re.IGNORECASE)
    for text in ("12-X 3-x", "none"):
        assert [m.groupdict() for m in pattern.finditer(text)] == [m.groupdict() for m in compiled.finditer(text)]
        assert bool(pattern.match(text)) == bool(compiled.match(text))
    assert lazy(rb"\d").search(b"a1") is not None
    with pytest.raises(re.error):
        lazy("(").search("")
    with pytest.raises(AttributeError):
        _ = pattern.no_method_of_patterns  # type: ignore[attr-defined]


@pytest.mark.parametrize("kept", [None, b"", b"damaged", b"\x81\xa3nccl\x01"])
def test_shipped_rules_are_those_of_the_files_whatever_is_kept(
    kept: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = sorted(rulebook.RULES.glob("*.yml"))
    key = rule_cache.key_of(path.read_bytes() for path in paths)
    if kept is not None:
        rule_cache.write(key, kept)
    for _ in range(2):  # from the files, then from what is kept
        read = rulebook.shipped.__wrapped__()
        for path in paths:
            assert [rule.id for rule in read[path.stem]] == [rule["id"] for rule in yaml.safe_load(path.read_text())]
    assert [path.name for path in (tmp_path / "hpcjob").iterdir()] == [key]


def test_a_changed_file_is_read_anew_and_a_missing_home_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rule_cache.key_of([b"a", b"b"]) != rule_cache.key_of([b"a", b"c"])
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    rule_cache.write("log-rules-x", b"x")
    assert rule_cache.read("log-rules-x") is None
    assert rulebook.shipped.__wrapped__()


def test_nothing_is_kept_where_nobody_knows_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the password file: no folder called ~ is made here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", str)
    rule_cache.write("log-rules-x", b"x")
    assert (rule_cache.read("log-rules-x"), template_cache(), list(tmp_path.iterdir())) == (None, None, [])


def test_the_default_view_of_a_file_imports_neither_yaml_nor_the_verdict(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("iter 1: loss 2.5, time 10ms\n")
    code = (
        "import sys; from hpcjob.cli import main; main(['tail', sys.argv[1]]); "
        "print(*sorted({'yaml', 'hashlib', 'rich', 'hpcjob.tracking', 'hpcjob.logs.explain'} & {*sys.modules}))"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=True, env=environment
        )
    assert "2.500000" in done.stdout
    assert done.stdout.splitlines()[-1] == ""

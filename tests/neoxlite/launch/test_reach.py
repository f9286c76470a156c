"""The look at all hosts before a run, with a stand-in for pdsh; tests/cluster/test_launch.py has the real one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from neoxlite.errors import NeoxliteError
from neoxlite.launch.reach import check_hosts

Pdsh = Callable[[str], Path]


@pytest.fixture
def pdsh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pdsh:
    """Return a function that puts a pdsh on PATH which notes its words and does what it is told."""

    def put(script: str) -> Path:
        words = tmp_path / "words"
        path = tmp_path / "bin/pdsh"
        path.parent.mkdir()
        path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >{shlex.quote(str(words))}\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        return words

    return put


def test_all_hosts_see_the_folder(pdsh: Pdsh, tmp_path: Path) -> None:
    """pdsh(1): -S for the codes, -f for all at once; a % of a name is doubled, for pdsh reads it."""
    words = pdsh("exit 0")
    check_hosts(("node1", "node2"), tmp_path / "100% 学習")
    look = f"test -d '{tmp_path}/100%% 学習' || echo no folder"
    assert words.read_text().splitlines() == ["-S", "-R", "ssh", "-f", "2", "-w", "node1,node2", look]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'node3: no folder'; echo 'node2: no folder'", "node2, node3: there is no "),
        (
            "echo 'pdsh@login: node2: ssh exited with exit code 255' >&2; exit 255",
            "not all of node1, node2, node3 can be reached: pdsh@login: node2: ssh exited with exit code 255",
        ),
        ("exit 1", "can be reached: pdsh ended with 1"),
    ],
)
def test_what_a_host_lacks_is_named(script: str, told: str, pdsh: Pdsh, tmp_path: Path) -> None:
    """A folder that is not shared, a host that does not let in."""
    pdsh(script)
    with pytest.raises(NeoxliteError) as caught:
        check_hosts(("node1", "node2", "node3"), tmp_path)
    assert told in caught.value.message
    assert caught.value.hint


def test_without_pdsh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is named, and what works without it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeoxliteError, match="there is no pdsh on PATH"):
        check_hosts(("node1", "node2"), tmp_path)

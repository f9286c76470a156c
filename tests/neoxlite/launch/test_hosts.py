"""Hostfiles and filters, by the rules of DeepSpeed's launcher (launcher/runner.py at 65d9f992)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neoxlite.errors import ConfigError
from neoxlite.launch.hosts import (
    Hosts,
    choose_hosts,
    count_gpus,
    filtered,
    is_this_machine,
    read_hostfile,
    this_machine,
)

FOUR = {f"host{number}": [0, 1, 2, 3] for number in range(1, 5)}


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "ホスト"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_hostfile_is_read(tmp_path: Path) -> None:
    """Comments, blank lines and tabs are allowed, the order is kept."""
    path = written(tmp_path, "# the cluster\n\nnode2 slots=2\nnode1\tslots=4  # the other one\n10.0.0.7 slots=1\n")
    assert read_hostfile(path) == {"node2": [0, 1], "node1": [0, 1, 2, 3], "10.0.0.7": [0]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no host"),
        ("# only a comment\n", "names no host"),
        ("node1\n", "ホスト:1: 'node1' is not a host"),
        ("a slots=8\nnode1 slots=8 max-slots=8\n", "ホスト:2: 'node1 slots=8 max-slots=8' is not a host"),
        ("node1 slots=0\n", "is not a host"),
        ("node1 slots=99999999999999999999\n", "is not a host"),
        (f"node1 slots={'9' * 5000}\n", "is not a host"),
        ("node1 slots=\uff18\n", "is not a host"),
        ("$(reboot) slots=8\n", "is not a host"),
        ("-oProxyCommand=x slots=8\n", "is not a host"),
        ("node1,node2 slots=8\n", "is not a host"),
        ("node[1-4] slots=8\n", "is not a host"),
        ("a slots=1\nb slots=1\na slots=1\n", "ホスト:3: a stands there twice"),
        (b"\xff\xfe\x00", "it is not text"),
    ],
)
def test_a_wrong_hostfile_is_refused_with_its_line(text: str | bytes, told: str, tmp_path: Path) -> None:
    """No line is skipped: a host that is not understood would silently make the run smaller."""
    with pytest.raises(ConfigError) as caught:
        read_hostfile(written(tmp_path, text))
    assert told in caught.value.message
    assert caught.value.hint


def test_a_hostfile_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Whoever calls decides whether this machine alone will do."""
    with pytest.raises(ConfigError, match="no cannot be read: No such file or directory"):
        read_hostfile(tmp_path / "no")


def test_filters() -> None:
    """The examples of DeepSpeed's own help: hosts, and GPUs of them."""
    assert filtered(FOUR, None, None) == FOUR
    assert filtered(FOUR, "host2@host4:0,2", None) == {"host2": [0, 1, 2, 3], "host4": [0, 2]}
    assert filtered(FOUR, "host4:3@host4:1", None) == {"host4": [1, 3]}
    assert filtered(FOUR, None, "host2:0") == {**FOUR, "host2": [1, 2, 3]}
    assert list(filtered(FOUR, None, "host1@host3:0,1,2,3")) == ["host2", "host4"]


@pytest.mark.parametrize(
    ("include", "exclude", "told"),
    [
        ("host9", None, "include: host9 is not among the hosts"),
        (None, "host1:4", "exclude: host1 has no slot 4"),
        ("host1:", None, "include: host1 has no slot"),
        ("host1:a", None, "include: host1 has no slot a"),
        ("host1:" + "1" * 5000, None, "include: host1 has no slot 1"),
        ("host1@", None, "include: (empty) is not among the hosts"),
        (None, "host1@host2@host3@host4", "leaves no host"),
        ("host1", "host2", "both given"),
    ],
)
def test_wrong_filters(include: str | None, exclude: str | None, told: str) -> None:
    """What does not fit the hosts is named."""
    with pytest.raises(ConfigError) as caught:
        filtered(FOUR, include, exclude)
    assert told in caught.value.message


def test_hosts_are_chosen() -> None:
    """All of them, the first so many, so many GPUs of each, or the same numbers of each."""
    assert choose_hosts(FOUR, num_nodes=-1, num_gpus=None) == Hosts(("host1", "host2", "host3", "host4"), 4)
    chosen = choose_hosts(FOUR, num_nodes=2, num_gpus=3)
    assert chosen == Hosts(("host1", "host2"), 3)
    assert chosen.world_size == 6
    assert choose_hosts({"a": [1, 3], "b": [1, 3]}, num_nodes=-1, num_gpus=None).gpus == (1, 3)
    with pytest.raises(ConfigError, match="num_nodes: 5 requested, but there are 4 hosts"):
        choose_hosts(FOUR, num_nodes=5, num_gpus=None)
    uneven = {"a": [0, 1, 2, 3], "b": [0, 1]}
    with pytest.raises(ConfigError, match=r"a and b have different slots \(0,1,2,3 and 0,1\)"):
        choose_hosts(uneven, num_nodes=-1, num_gpus=None)
    assert choose_hosts(uneven, num_nodes=-1, num_gpus=2).per_host == 2


def test_this_machine() -> None:
    """As many processes as GPUs; a mask in the environment counts."""
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0,3"}) == 2
    assert count_gpus({"CUDA_VISIBLE_DEVICES": ""}) == 0
    assert this_machine(None, {"CUDA_VISIBLE_DEVICES": "4,5,6"}) == Hosts((), 3)
    assert this_machine(2, {"CUDA_VISIBLE_DEVICES": "4,5,6"}) == Hosts((), 2)
    assert this_machine(None, {"CUDA_VISIBLE_DEVICES": ""}) == Hosts((), 1)
    assert this_machine(3, {"CUDA_VISIBLE_DEVICES": ""}) == Hosts((), 3)
    with pytest.raises(ConfigError, match="num_gpus: 4 requested, but this machine has 3"):
        this_machine(4, {"CUDA_VISIBLE_DEVICES": "4,5,6"})


def test_which_name_is_this_machine() -> None:
    """Its own names and addresses are, those of documentation (RFC 5737, RFC 6761) are not."""
    assert is_this_machine("localhost")
    assert is_this_machine("127.0.0.1")
    assert not is_this_machine("192.0.2.1")

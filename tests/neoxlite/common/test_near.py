"""Names that are offered for a mistyped one."""

from __future__ import annotations

import pytest

from hpcjob.job import JobFile
from neoxlite.common.near import near

_KEYS = JobFile.__struct_fields__
_PROFILES = ("abci2", "abci3", "abci", "lab", "local", "miyabi", "tsubame", "wisteria")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("node", _KEYS, ["nodes", "nodelist"]),  # what it begins
        ("environment", _KEYS, ["env"]),  # what begins it
        ("wall-time", _KEYS, ["walltime"]),  # - and _ are one
        ("Nodes", _KEYS, ["nodes"]),
        ("gpus_per_ndoe", _KEYS, ["gpus_per_node"]),  # swapped
        ("acount", _KEYS, ["account"]),
        ("abc", _PROFILES, ["abci", "abci2", "abci3"]),
        ("tsubame4", _PROFILES, ["tsubame"]),
        ("wisteira", _PROFILES, ["wisteria"]),
        ("miyabi-g", _PROFILES, ["miyabi"]),
        ("partition", _KEYS, []),  # not reservation
        ("time", _KEYS, []),  # not name
        ("abd", _PROFILES, []),
        ("pegasus", _PROFILES, []),
        ("x", _KEYS, []),
        ("", _KEYS, []),
        ("NCCL_IB_HCAS", ("NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_NET"), ["NCCL_IB_HCA", "NCCL_IB_TC"]),
    ],
)
def test_near_names_are_like_the_one_typed(name: str, known: tuple[str, ...], meant: list[str]) -> None:
    """A slip or two, or a beginning in common; nothing where no name is like it."""
    assert near(name, known) == meant

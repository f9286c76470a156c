"""Why a rank could not join the others: torch's and NCCL's words, told as what is to be done."""

from __future__ import annotations

import socket

import pytest

from neoxlite.errors import NeoxliteError
from neoxlite.parallel.ranks import Ranks

# As torch prints NCCL 2.14 (init.cc), not recorded here: it takes a GPU and two ranks.
_ONE_GPU = """NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"""


def _ranks(rank: int, port: int) -> Ranks:
    return Ranks(rank, 2, rank, 2, "127.0.0.1", port, "torchrun")


def _join(ranks: Ranks) -> None:
    import torch

    from neoxlite.parallel.distributed import join_world

    join_world(ranks, torch.device("cpu"))


def test_a_port_that_is_taken(deepspeed_ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 names the port, and sends nobody to the other ranks' logs."""
    for name in _ranks(0, 1).exported():
        monkeypatch.setenv(name, "")  # put back behind the test
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(NeoxliteError, match=f"cannot listen on port {port}: another program") as caught:
            _join(_ranks(0, port))
    assert "set another MASTER_PORT" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("rank", "words", "told", "hint"),
    [
        (1, _ONE_GPU, "rank 1 has the GPU of another rank", "start as many ranks a node as it has GPUs"),
        (0, "Timed out after 4 seconds waiting for clients. 1/2 clients joined.", "only 1 of 2 ranks came", "earliest"),
        (
            1,
            "The client socket has timed out after 3000ms",
            "rank 1 cannot join the others at 127.0.0.1:9",
            "rank 0 mu",
        ),
    ],
)
def test_words_of_the_libraries(
    rank: int, words: str, told: str, hint: str, deepspeed_ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch or NCCL say when a rank cannot join."""
    import torch.distributed as dist

    def fail(*args: object, **kwargs: object) -> None:
        raise dist.DistBackendError(words)

    monkeypatch.setattr(dist, "init_process_group", fail)
    for name in _ranks(0, 1).exported():
        monkeypatch.setenv(name, "")
    with pytest.raises(NeoxliteError, match=told) as caught:
        _join(_ranks(rank, 9))
    assert hint in (caught.value.hint or "")

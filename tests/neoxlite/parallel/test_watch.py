"""The watch over other ranks: a death is noticed even by a rank that cannot be interrupted."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from neoxlite.parallel.watch import PeerWatch


def _watched(ranks: Any, folder: Path, dying: int | None, how: str) -> str:
    from neoxlite.parallel.distributed import join_world

    join_world(ranks, torch.device("cpu"))
    watch = PeerWatch(ranks, lambda line: (folder / f"lost{ranks.rank}").write_text(line) and None, grace_s=0.2)
    watch.start(torch.device("cpu"))
    if ranks.rank == dying:
        if how == "raises":
            with watch:
                raise SystemExit(1)
        os.kill(os.getpid(), signal.SIGKILL)
    if dying is not None:
        time.sleep(60)  # stands for a collective that never returns
    watch.close()
    return "left by itself"


@pytest.mark.parametrize(("dying", "how", "code"), [(0, "killed", -9), (2, "killed", -9), (1, "raises", 0)])
def test_a_death_ends_every_rank(dying: int, how: str, code: int, world: Any, tmp_path: Path) -> None:
    """kill -9 of any rank, rank 0 among them, or an error in one, ends the others with code 1 and says why."""
    children = world.start(3, _watched, tmp_path, dying, how)
    for child in children:
        child.end()
    codes = [child.process.exitcode for child in children]
    assert codes == [code if rank == dying else 1 for rank in range(3)]
    for rank in {0, 1, 2} - {dying}:
        assert f"rank {rank} lost the other ranks" in (tmp_path / f"lost{rank}").read_text()


def test_an_orderly_end_is_no_death(world: Any, tmp_path: Path) -> None:
    """Ranks that take leave end one after another, and none is taken for lost."""
    assert world.run(3, _watched, tmp_path, None, "") == ["left by itself"] * 3
    assert not list(tmp_path.glob("lost*"))

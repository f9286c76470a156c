"""Worlds of ranks for benchmarks/gpu/multi.py: forked from a server that has imported everything, each with its limit.

A fresh process spends a quarter of a minute on imports on a loaded machine; a forked one begins at once. Nothing in the
server touches a GPU. Where a forked process cannot use one all the same, `Worlds` starts fresh ones.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neoxlite.parallel.ranks import Ranks, free_port

PRELOAD = "multi_preload"


@dataclass(frozen=True)
class Item:
    """One thing to find out."""

    name: str
    work: str
    """``module:function``, called on each rank with (ranks, folder, arguments); it returns what JSON can hold."""
    ranks: int
    arguments: dict[str, Any] = field(default_factory=dict)
    limit_s: float = 120
    gpus: tuple[int, ...] = ()
    """GPUs that its ranks see."""
    alone: bool = False
    """Whether nothing else may run on its GPUs at that time."""
    needs: tuple[str, ...] = ()
    """Items that have to have succeeded."""
    after: tuple[str, ...] = ()
    """Items that have to be over, however they ended."""


class World:
    """The processes of one item; `poll` until it has a result."""

    def __init__(self, context: Any, item: Item, folder: Path):
        self.item, self.folder = item, folder
        self.began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("rank*.json"):
            old.unlink()
        if "save" in item.arguments:
            shutil.rmtree(item.arguments["save"], ignore_errors=True)  # of a call that was cut off
        address: tuple[str | None, int | None] = ("127.0.0.1", free_port()) if item.ranks > 1 else (None, None)
        self._processes = []
        for rank in range(item.ranks):
            ranks = Ranks(rank, item.ranks, rank, item.ranks, *address, "multi.py")
            process = context.Process(target=_rank, args=(item, ranks, folder), daemon=False)
            process.start()
            self._processes.append(process)

    def poll(self, *, cut_off: bool = False) -> dict[str, Any] | None:
        """Return the item's result once it is over: ``ranks``, what each returned, or ``error``; and ``seconds``.

        Args:
            cut_off: it has to be over now.
        """
        seconds = round(time.monotonic() - self.began, 1)
        if cut_off or seconds > self.item.limit_s:
            self._kill()
            limit = "cut off" if cut_off else f"longer than its limit of {self.item.limit_s:.0f} s"
            return {"error": limit, "seconds": seconds}
        codes = [process.exitcode for process in self._processes]
        if any(code not in (None, 0) for code in codes):
            self._wait(5)
            self._kill()
            return {"error": self._error(codes), "seconds": seconds}
        if None in codes:
            return None
        found = [json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(self.item.ranks)]
        return {"ranks": found, "seconds": seconds}

    def _error(self, codes: list[int | None]) -> str:
        for rank in range(self.item.ranks):
            with contextlib.suppress(OSError):
                return f"rank {rank}: {(self.folder / f'rank{rank}.error').read_text()[-2000:]}"
        return f"the ranks ended with codes {codes}"

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))

    def _kill(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join(10)


def context(fresh: bool) -> Any:
    """Return how processes are made: forked from a server with everything imported, or each afresh."""
    found = multiprocessing.get_context("spawn" if fresh else "forkserver")
    if not fresh:
        found.set_forkserver_preload([PRELOAD])
    return found


def _rank(item: Item, ranks: Ranks, folder: Path) -> None:
    """Run an item's work as one rank; its output goes to a file."""
    log = os.open(folder / f"rank{ranks.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if item.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, item.gpus))
    error = folder / f"rank{ranks.rank}.error"
    error.unlink(missing_ok=True)
    module, function = item.work.split(":")
    import torch

    # A fork breaks torch's thread pool; a new one before threads ask for it at once ("Invalid thread pool!").
    torch.set_num_threads(torch.get_num_threads())
    try:
        found = getattr(importlib.import_module(module), function)(ranks, folder, item.arguments)
        temporary = folder / f"rank{ranks.rank}.tmp"
        temporary.write_text(json.dumps(found))
        temporary.rename(folder / f"rank{ranks.rank}.json")
    except BaseException:
        error.write_text(traceback.format_exc())
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # destructors of process groups have nothing more to say

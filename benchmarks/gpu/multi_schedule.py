"""Starts the items of benchmarks/gpu/multi.py in order, side by side where they may, and keeps what they give."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from multi_world import Item, World, context


class Schedule:
    """Runs items.

    Args:
        results: has ``add`` and ``succeeded``.
        together: so many items that are not alone on their GPUs run at once.
        patience: factor of all limits.
        fresh: see `multi_world.context`.
    """

    def __init__(
        self, items: list[Item], results: Any, folder: Path, *, together: int, patience: float = 1, fresh: bool = False
    ):
        items = [dataclasses.replace(item, limit_s=item.limit_s * patience) for item in items]
        self._waiting, self._results, self._folder, self._together = list(items), results, folder, together
        self._context = context(fresh)
        self._running: list[World] = []
        self._began = time.monotonic()

    def run(self, until: float, grace_s: float = 30) -> None:
        """Run all items; begin none after ``until`` (time.monotonic), and end those that run ``grace_s`` later."""
        while self._running or self._waiting:
            for world in list(self._running):
                result = world.poll(cut_off=time.monotonic() > until + grace_s)
                if result is not None:
                    self._running.remove(world)
                    self._over(world.item, result)
            if time.monotonic() > until and self._waiting:
                print(f"no time left for {', '.join(item.name for item in self._waiting)}", flush=True)
                self._waiting.clear()
            while self._waiting and self._may_start(self._waiting[0]):
                self._start(self._waiting.pop(0))
            time.sleep(0.05)

    def _may_start(self, item: Item) -> bool:
        """Keep to the order: an item that has to wait holds up those behind it."""
        running = [world.item for world in self._running]
        if any(other.name in (*item.needs, *item.after) for other in running):
            return False
        if item.alone:
            return not any(set(item.gpus) & set(other.gpus) or not other.alone for other in running)
        return len(running) < self._together and not any(other.alone for other in running)

    def _start(self, item: Item) -> None:
        missing = [name for name in item.needs if not self._results.succeeded(name)]
        if missing:
            self._over(item, {"error": f"needs {', '.join(missing)}", "seconds": 0.0})
            return
        self._running.append(World(self._context, item, self._folder / item.name.replace(" ", "-").replace(",", "")))

    def _over(self, item: Item, result: dict[str, Any]) -> None:
        if item.name == "machine" and "error" in result and self._context.get_start_method() == "forkserver":
            # Imports touched a GPU, and a forked process has none: fresh ones from here on.
            print(f"forked processes cannot be used: {result['error'][-300:]}", flush=True)
            self._context = context(True)
            self._waiting.insert(0, item)
            return
        self._results.add(item.name, result)
        said = "ok" if "ranks" in result else f"FAILED: {result['error'].strip().splitlines()[-1]}"
        print(f"{time.monotonic() - self._began:6.0f} s  {item.name}: {said} ({result['seconds']} s)", flush=True)

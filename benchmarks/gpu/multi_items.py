"""What benchmarks/gpu/multi.py finds out, item by item, in the order of their worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multi_layouts import VOCABULARY, Layout, config
from multi_world import Item

BEHIND = 3
"""Iterations behind the checkpoint, which those that load it do again."""
SAVED_AT = 9
PRECISIONS = {"bf16": "bfloat16", "fp32": "fp32"}
OTHER_CUT = "one, other cut"
ONE_MICRO_STEP = "one micro-step"


def same_cut(name: str) -> str:
    """Return the curve of one GPU whose micro-batches are as large as another curve's; ``one`` where there is none."""
    return OTHER_CUT if name.startswith("dp") and ONE_MICRO_STEP not in name else "one"


@dataclass(frozen=True)
class Plan:
    """What is known before: where things lie, on what they run."""

    folder: Path
    gpus: int
    """GPUs, or on the CPU the ranks that stand for them."""
    device: str
    tiny: bool
    sizes: tuple[str, ...]

    @property
    def iterations(self) -> int:
        """Length of a curve."""
        return 8 if self.tiny else 50

    def items(self) -> list[Item]:
        """Return all items."""
        found = [Item("machine", "multi_train:machine", 1, limit_s=90, alone=True, gpus=tuple(range(self.gpus)))]
        found.append(self._bandwidth())
        first, *others = self.sizes
        found += self._speeds(first)
        # Side by side, one GPU each.
        found += [self._alone_with_deepspeed(size, gpu % self.gpus) for gpu, size in enumerate(self.sizes)]
        found.append(self._pipelined(first))
        found += [self._kill(), *self._written(), *self._curves(), *self._reloads()]
        for size in others:
            found += [*self._speeds(size), self._pipelined(size)]
        return found

    def _bandwidth(self) -> Item:
        sizes = [2**16, 2**20] if self.tiny else [2**20, 2**24, 2**26, 2**29, 2**30, 2**32]
        arguments = {"bytes": sizes, "repeat": 3 if self.tiny else 5}
        gpus = tuple(range(self.gpus))
        return Item("bandwidth", "multi_bandwidth:bandwidth", self.gpus, arguments, 90, gpus, alone=True)

    def _kill(self) -> Item:
        name = "kill"
        layout = Layout(data=self.gpus, implementation="direct")
        folder = self.folder / name
        keys = {"save": str(folder / "checkpoints"), "load": str(folder / "checkpoints"), "log_interval": 1}
        at = 10 if self.tiny else 50
        path = self._config(name, self._small, layout, "bf16", 2, 2, 300, **keys, checkpoint_factor=at)
        arguments = {"config": path, "kill_behind": at + at // 2, "ranks": self.gpus, "device": self.device}
        arguments["checkpoints"] = keys["save"]
        arguments["patience_s"] = 1800 if self.tiny else 120
        return Item(name, "multi_kill:kill", 1, arguments, 300)

    # Curves and checkpoints

    @property
    def _small(self) -> str:
        return "tiny" if self.tiny else "125M"

    def _config(
        self, name: str, size: str, layout: Layout, precision: str, micro: int, steps: int, iterations: int, **keys: Any
    ) -> str:
        sequence = 64 if self.tiny else 2048 if size != "125M" else 1024
        return config(
            self.folder,
            name,
            size,
            layout,
            precision=PRECISIONS[precision],
            sequence=sequence,
            micro_batch=micro,
            accumulation=steps,
            iterations=iterations,
            **keys,
        )

    def _layouts(self, precision: str) -> dict[str, Layout]:
        """Return the layouts of the curves; the first is what the others are held against."""
        found = {"one": Layout(implementation="deepspeed" if precision == "bf16" else "auto")}
        if precision == "fp32":
            found["one"] = Layout(stage=0)
            found["dp2 z0"] = Layout(data=2, stage=0)
            found["dp2 z1"] = Layout(data=2)
        else:
            found["one direct"] = Layout(implementation="direct")
            found["dp2 z1 direct"] = Layout(data=2, implementation="direct")
            found["tp2 direct"] = Layout(tensor=2, implementation="direct")
            found["dp2 z1"] = Layout(data=2, implementation="deepspeed")
        found |= {f"dp2 z{stage}": Layout(data=2, stage=stage) for stage in (2, 3)}
        found |= {"tp2": Layout(tensor=2), "pp2": Layout(pipeline=2)}
        if precision == "bf16":
            found["pp2 direct"] = Layout(pipeline=2, implementation="direct")
        if self.gpus >= 4:
            found["dp2 x pp2"] = Layout(data=2, pipeline=2)
            found["dp2 x tp2"] = Layout(data=2, tensor=2)
            found["tp2 x pp2"] = Layout(tensor=2, pipeline=2)
        if precision == "bf16":  # what is not called direct is what DeepSpeed does
            return {
                name: replace(layout, implementation="deepspeed")
                if layout.implementation == "auto" and layout.stage == 1
                else layout
                for name, layout in found.items()
            }
        return found

    def _batch(self, layout: Layout, *, accumulation: int = 4) -> tuple[int, int]:
        """Return micro-batch and accumulation of the common 8 sequences."""
        return 8 // accumulation // layout.data, accumulation

    def _curves(self) -> Iterator[Item]:
        for precision in PRECISIONS:
            for name, layout in self._layouts(precision).items():
                yield self._curve(f"{precision} {name}", precision, layout, 4)
            layouts = self._layouts(precision)
            # How far rounding alone moves a curve: the reference again, its batch cut otherwise.
            more = {OTHER_CUT: (layouts["one"], 8)}
            if "dp2 z1 direct" in layouts:
                more[f"dp2 z1 direct, {ONE_MICRO_STEP}"] = (layouts["dp2 z1 direct"], 1)
            for name, (layout, accumulation) in more.items():
                yield self._curve(f"{precision} {name}", precision, layout, accumulation)

    def _curve(self, full: str, precision: str, layout: Layout, accumulation: int) -> Item:
        batch = self._batch(layout, accumulation=accumulation)
        path = self._config(full, self._small, layout, precision, *batch, self.iterations, log_interval=1)
        gpus = self._gpus(layout)
        return Item(f"curve {full}", "multi_train:train", layout.ranks, {"config": path}, 100, gpus)

    def _written(self) -> Iterator[Item]:
        """Yield short runs that leave a checkpoint, as short ones load it."""
        for precision in PRECISIONS:
            for name, layout in self._layouts(precision).items():
                full = f"{precision} {name}"
                keys = {"save": str(self._checkpoints(full)), "extra_save_iters": [SAVED_AT], "log_interval": 1}
                batch, last = self._batch(layout), SAVED_AT + BEHIND
                path = self._config(f"written {full}", self._small, layout, precision, *batch, last, **keys)
                arguments = {"config": path, "saved_at": SAVED_AT, "save": keys["save"]}
                yield Item(f"written {full}", "multi_train:train", layout.ranks, arguments, 100, self._gpus(layout))

    def _checkpoints(self, full: str) -> Path:
        return self.folder / "checkpoints" / full.replace(" ", "-")

    def _reloads(self) -> Iterator[Item]:
        for precision in PRECISIONS:
            layouts = self._layouts(precision)
            for name, layout in layouts.items():
                full = f"{precision} {name}"
                batch, last = self._batch(layout), SAVED_AT + BEHIND
                path = self._config(f"reload {full}", self._small, layout, precision, *batch, last)
                folders = {other: self._checkpoints(f"{precision} {other}") for other in layouts}
                checkpoints = {other: str(where / f"global_step{SAVED_AT}") for other, where in folders.items()}
                arguments = {"config": path, "checkpoints": checkpoints, "iterations": BEHIND}
                after = tuple(f"written {precision} {other}" for other in layouts)
                gpus = self._gpus(layout)
                yield Item(f"reload {full}", "multi_train:reload", layout.ranks, arguments, 120, gpus, after=after)

    def _gpus(self, layout: Layout) -> tuple[int, ...]:
        return tuple(range(layout.ranks))

    # Speed

    def _speeds(self, size: str) -> Iterator[Item]:
        n, micro = self.gpus, 2 if self.tiny else 8
        data = Layout(data=n, implementation="direct")
        alone = Layout(implementation="direct")
        rows: list[tuple[str, Layout, int]] = [
            ("one", alone, 1),
            (f"dp{n}", data, 1),
            (f"dp{n}, deepspeed", replace(data, implementation="deepspeed"), 1),
            (f"tp{n}", Layout(tensor=n, implementation="direct"), 1),
        ]
        yield self._speed(size, *rows[0], micro, (0,))
        yield self._ddp(size, 1, micro, (n - 1,))  # beside it, on another GPU
        for row in rows[1:]:
            yield self._speed(size, *row, micro, tuple(range(n)))
            if row[1] == data:
                yield self._ddp(size, n, micro, tuple(range(n)))

    def _pipelined(self, size: str) -> Item:
        layout = Layout(pipeline=self.gpus, implementation="direct")
        return self._speed(size, f"pp{self.gpus}", layout, 16, 2 if self.tiny else 8, tuple(range(self.gpus)))

    def _alone_with_deepspeed(self, size: str, gpu: int) -> Item:
        return self._speed(size, "one, deepspeed", Layout(implementation="deepspeed"), 1, 2 if self.tiny else 8, (gpu,))

    def _speed(self, size: str, name: str, layout: Layout, gas: int, micro: int, gpus: tuple[int, ...]) -> Item:
        iterations, interval = (4, 1) if self.tiny else (22, 4) if gas == 1 else (6, 1)
        keys: dict[str, Any] = {"log_interval": interval}
        if layout.pipeline > 1:
            keys["pipe_partition_method"] = "flops"
        if self.tiny and layout.tensor == layout.pipeline == 1:
            keys["kernels"] = {"fused_head_loss": True}  # as a GPU would choose
        path = self._config(f"speed {size} {name}", size, layout, "bf16", micro, gas, iterations, **keys)
        # All steps of a log interval, the first profiled one not counted; of long steps one.
        arguments = {"config": path, "profiled": 1 + interval, "rough": True}
        return Item(f"speed {size} {name}", "multi_train:train", layout.ranks, arguments, 100, gpus, alone=True)

    def _ddp(self, size: str, ranks: int, micro: int, gpus: tuple[int, ...]) -> Item:
        name = f"speed {size} {'one' if ranks == 1 else f'dp{ranks}'}, DDP"
        path = self._config(name, size, Layout(data=ranks), "bf16", micro, 1, 6 if self.tiny else 16, log_interval=1)
        vocabulary = 4096 if self.tiny else VOCABULARY
        arguments = {"config": path, "profiled": 2, "vocabulary": vocabulary}
        return Item(name, "multi_ddp:ddp", ranks, arguments, 100, gpus, alone=True)

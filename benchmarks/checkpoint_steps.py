"""What a save costs the steps of training, and why: every step timed, one engine, ways of writing in turn.

    python benchmarks/checkpoint_steps.py 350M --precision bfloat16 --compile             # a GPU: under 100 seconds
    python benchmarks/checkpoint_steps.py 1-3B --precision bfloat16 --compile --weights   # a seventh of the bytes
    python benchmarks/checkpoint_steps.py                                                 # small, on a CPU

The trainer's own engine and saves on random tokens, without loader and log. Every step is waited for, so that its time
is its own. A line each for a step alone; a save at once, and how long it stands still; and the steps beside

    a save to the disk            the thread of this process writes
    a save to memory              the same thread, to /dev/shm: no disk, the interpreter's lock and the memory alone
    another process               it writes as many bytes to the same disk as the thread does: no lock is shared
    another that leaves its pages the same, and what it wrote stays in the page cache

If steps are longer beside another process too, the machine is the cause; if beside the thread alone, this program is.
A step is told with the time until it was issued, and with how often its thread gave its core away, as for the lock. The
last line is what the issue of saving beside training is about: what it costs, as a share of a save at once.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

from neoxlite.checkpoint.background import BackgroundSaver
from neoxlite.checkpoint.save import Contents, save
from neoxlite.config import load_config
from neoxlite.parallel.distributed import join_world, leave_world, prepare
from neoxlite.parallel.ranks import Ranks
from neoxlite.parallel.topology import Topology

SMALL: dict[str, Any] = {
    "num_layers": 7,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "pos_emb": "rotary",
    "no_weight_tying": True,
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.0001}},
    "train_iters": 1000,
}

# Arguments: how the files' names begin, their bytes together, "leave" or "drop" the pages. The end of stdin starts it.
WRITER = """
import os, sys
path, left, pages = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data, number = os.urandom(1 << 26), 0
print("ready", flush=True)
sys.stdin.readline()
while left:
    with open(f"{path}{number}", "wb") as file:
        for _ in range(3):
            left -= file.write(data[:left])
        file.flush()
        os.fsync(file.fileno())
        if pages == "drop":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    number += 1
"""


def build(folder: Path, model: list[str], overrides: dict[str, Any], device: torch.device) -> tuple[Any, Any]:
    """Return the configuration and an engine on ``device``."""
    if not model:
        model = [str(folder / "benchmark.yml")]
        Path(model[0]).write_text(yaml.safe_dump(SMALL))
    cfg = load_config(model, None, overrides, world_size=1)
    prepare(device)
    join_world(Ranks(), device)
    # Behind `prepare`: they import DeepSpeed.
    from neoxlite.model.spec import ModelSpec
    from neoxlite.training.create import create_engine

    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(50257))
    return cfg, create_engine(cfg, spec, Topology(), device, None)


class Step(NamedTuple):
    """A step that was taken, in milliseconds."""

    took: float
    issued: float
    """Until the call came back; behind it the device was waited for."""
    waits: int
    """How often the thread of training gave its core away."""


@dataclass
class Beside:
    """What was done beside steps: how long they stood still and it lasted, in milliseconds, and the steps."""

    stood: float
    lasted: float
    steps: list[Step]


class Steps:
    """Takes steps and times them."""

    def __init__(self, cfg: Any, engine: Any, device: torch.device):
        generator = torch.Generator().manual_seed(1)
        shape = (cfg.train_micro_batch_size_per_gpu, cfg.seq_length + 1)
        self._batch = torch.randint(0, 50257, shape, generator=generator)
        self._cfg, self._engine, self._device = cfg, engine, device
        self.number = 0

    def one(self) -> Step:
        """Take a step."""
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        began = time.perf_counter()
        self.number += 1
        self._engine.train_step([self._batch] * self._cfg.gradient_accumulation_steps, self.number)
        issued = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        took = time.perf_counter() - began
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        return Step(took * 1000, (issued - began) * 1000, waits)

    def many(self, count: int) -> list[Step]:
        """Take steps."""
        return [self.one() for _ in range(count)]

    def during(self, goes_on: Callable[[], bool]) -> list[Step]:
        """Take steps, one at the least, as long as something else goes on."""
        taken = [self.one()]
        while goes_on():
            taken.append(self.one())
        return taken


class Ways:
    """The ways of writing a checkpoint to ``disk``, or to a folder in ``memory``, each beside steps."""

    def __init__(self, steps: Steps, engine: Any, disk: Path, memory: Path, *, weights: bool):
        self._steps, self._engine, self._disk, self._memory = steps, engine, disk, memory
        self._saver, self._with_optimizer = BackgroundSaver(engine), not weights
        self.bytes = 0

    def beside(self) -> Beside:
        """Save to the disk beside steps."""
        saved = self._save_beside(self._disk)
        self.bytes = sum(path.stat().st_size for path in self._disk.glob("global_step*/*.safetensors"))
        return saved

    def in_memory(self) -> Beside:
        """Save to memory beside steps."""
        try:
            return self._save_beside(self._memory)
        finally:
            shutil.rmtree(self._memory, ignore_errors=True)

    def at_once(self) -> Beside:
        """Save at once, without a step."""
        began = time.perf_counter()
        save(self._disk, self._engine, self._contents(), keep_last=1)
        stood = (time.perf_counter() - began) * 1000
        return Beside(stood, stood, [])

    def _contents(self) -> Contents:
        return Contents({"iteration": self._steps.number}, with_optimizer=self._with_optimizer)

    def _save_beside(self, root: Path) -> Beside:
        began = time.perf_counter()
        self._saver.start(root, self._contents(), keep_last=1)
        stood = (time.perf_counter() - began) * 1000
        steps = self._steps.during(lambda: self._saver.is_writing)
        self._saver.wait()
        return Beside(stood, self._saver.finished()[0].seconds * 1000, steps)

    def elsewhere(self, pages: str) -> Beside:
        """Let another process write beside steps, whose pages it gives back ("drop") or leaves in the page cache."""
        with tempfile.TemporaryDirectory(dir=self._disk.parent) as folder:
            words = [sys.executable, "-c", WRITER, f"{folder}/", str(self.bytes), pages]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.readline()  # it is ready
                process.stdin.close()
                began = time.perf_counter()
                steps = self._steps.during(lambda: process.poll() is None)
                lasted = (time.perf_counter() - began) * 1000
            if process.returncode:
                raise SystemExit(f"the process beside the steps ended with {process.returncode}")
        return Beside(0.0, lasted, steps)


def measure(ways: Ways, steps: Steps, alone: list[Step], until: float, rounds: int) -> dict[str, list[Beside]]:
    """Go through the ways and print each, the first two once at the least; ``alone`` gets the steps between them."""
    order = {"a save at once": ways.at_once, "beside a save to the disk": ways.beside}
    if shutil.disk_usage("/dev/shm").free > 2 * ways.bytes:
        order["beside a save to memory"] = ways.in_memory
    order["beside another process"] = lambda: ways.elsewhere("drop")
    order["beside another that leaves its pages"] = lambda: ways.elsewhere("leave")
    measured: dict[str, list[Beside]] = {}
    longest = 0.0
    for _ in range(rounds):
        for name, take in order.items():
            began = time.perf_counter()
            if len(measured) >= 2 and began + longest > until:
                return measured
            one = take()
            measured.setdefault(name, []).append(one)
            print(f"{name}: {line(one, alone)}", flush=True)
            alone += steps.many(5)
            longest = max(longest, time.perf_counter() - began)
    return measured


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="*", help="configuration files of a model; by default 50 million parameters")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--optimizer", choices=("direct", "deepspeed"), help="zero_optimization.implementation")
    parser.add_argument("--compile", action="store_true", help="compile the blocks, as the trainer does on a GPU")
    parser.add_argument("--weights", action="store_true", help="save without optimizer state: a seventh in bfloat16")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds in all beyond which nothing more is begun")
    parser.add_argument("--rounds", type=int, default=3, help="times that each way is measured at most")
    parser.add_argument("--folder", help="where checkpoints are written, by default a temporary folder")
    return parser.parse_args()


def main() -> None:
    """Print the figures."""
    started = time.perf_counter()
    options = parsed()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    zero = {"stage": 1, **({"implementation": options.optimizer} if options.optimizer else {})}
    keys = {"bf16": None, "precision": options.precision, "zero_optimization": zero, "checkpoint_activations": False}
    keys |= {"kernels": {"compile_blocks": options.compile}}
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as name,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        cfg, engine = build(Path(name), options.model, keys, device)
        steps = Steps(cfg, engine, device)
        ways = Ways(steps, engine, Path(name) / "disk", Path(memory) / "memory", weights=options.weights)
        steps.many(5)
        alone = steps.many(15)
        first = ways.beside()
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        words = f"{' '.join(options.model) or '50M'}, {cfg.precision}, micro-batch {cfg.train_micro_batch_size_per_gpu}"
        size = f"{ways.bytes / 1e6:,.0f} MB a checkpoint"
        print(f"{where}, torch {torch.__version__}; {words}; {size}; milliseconds, of steps the median")
        print(f"a step alone: {median(alone)}")
        print(f"the first save beside training, which makes its buffers: {line(first, alone)}", flush=True)
        measured = measure(ways, steps, alone, started + options.budget, options.rounds)
    print(f"a step alone, in all of that time: {median(alone)}")
    at_once, beside, *_ = (statistics.median(cost(one, alone) for one in each) for each in measured.values())
    print(f"it costs {beside / at_once:.1%} of a save at once: {beside:,.1f} of {at_once:,.1f}")
    print(f"{time.perf_counter() - started:.0f} s in all")
    leave_world()


def cost(one: Beside, alone: list[Step]) -> float:
    """Return the milliseconds that training lost: it stood still, and its steps were longer than ``alone``."""
    step = statistics.median(step.took for step in alone)
    return one.stood + sum(each.took - step for each in one.steps)


def line(one: Beside, alone: list[Step]) -> str:
    """Return the figures of one way of writing."""
    told = f"stands still for {one.stood:,.1f}"
    if not one.steps:
        return told
    step, during = (statistics.median(each.took for each in steps) for steps in (alone, one.steps))
    told += f", done after {one.lasted:,.1f}; the first step {one.steps[0].took:.1f}, {len(one.steps)} steps of "
    return (
        f"{told}{median(one.steps)} ({during / step - 1:+.1%}); longer by {cost(one, alone) - one.stood:,.1f} together"
    )


def median(steps: list[Step]) -> str:
    """Return the figures of a step."""
    took, issued, waits = map(statistics.median, zip(*steps, strict=True))
    return f"{took:.1f}, issued in {issued:.1f} with {waits:.0f} waits"


if __name__ == "__main__":
    main()

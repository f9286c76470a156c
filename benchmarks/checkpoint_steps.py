"""What a save costs the steps of training: every step timed, one engine, saves at once and beside training in turn.

    python benchmarks/checkpoint_steps.py 350M --precision bfloat16     # a GPU: under a minute
    python benchmarks/checkpoint_steps.py                                # small, on a CPU

The trainer's own engine and saves on random tokens, without loader and log. Every step is waited for, so that its time
is its own. Lines: a step alone; a save at once and how long it stands still; a save beside training, how long it stands
still, the steps during it, and what they took longer together. The last line is what the issue of saving beside
training is about: what it costs, as a share of a save at once.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

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


def build(folder: Path, model: list[str], overrides: dict[str, Any], device: torch.device) -> tuple[Any, Any]:
    """Return the configuration and an engine on ``device``."""
    from neoxlite.config import load_config
    from neoxlite.parallel.distributed import join_world, prepare
    from neoxlite.parallel.ranks import Ranks
    from neoxlite.parallel.topology import Topology

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


class Steps:
    """Takes steps and times them."""

    def __init__(self, cfg: Any, engine: Any, device: torch.device):
        generator = torch.Generator().manual_seed(1)
        shape = (cfg.train_micro_batch_size_per_gpu, cfg.seq_length + 1)
        self._batch = torch.randint(0, 50257, shape, generator=generator)
        self._cfg, self._engine, self._device = cfg, engine, device
        self.number = 0

    def one(self) -> float:
        """Take a step and return its milliseconds."""
        began = time.perf_counter()
        self.number += 1
        self._engine.train_step([self._batch] * self._cfg.gradient_accumulation_steps, self.number)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return (time.perf_counter() - began) * 1000

    def many(self, count: int) -> list[float]:
        """Take steps and return the milliseconds of each."""
        return [self.one() for _ in range(count)]


def at_once(root: Path, engine: Any, number: int) -> float:
    """Save and return the milliseconds."""
    from neoxlite.checkpoint.save import Contents, save

    began = time.perf_counter()
    save(root, engine, Contents({"iteration": number}), keep_last=1)
    return (time.perf_counter() - began) * 1000


def beside(root: Path, saver: Any, steps: Steps) -> tuple[float, list[float], float]:
    """Save beside training; return milliseconds: standing still, each step meanwhile, and the save in all."""
    from neoxlite.checkpoint.save import Contents

    began = time.perf_counter()
    saver.start(root, Contents({"iteration": steps.number}), keep_last=1)
    blocked = (time.perf_counter() - began) * 1000
    times = [steps.one()]
    while saver.is_writing:
        times.append(steps.one())
    saver.wait()
    return blocked, times, saver.finished()[0].seconds * 1000


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="*", help="configuration files of a model; by default 50 million parameters")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--optimizer", choices=("direct", "deepspeed"), help="zero_optimization.implementation")
    parser.add_argument("--compile", action="store_true", help="compile the blocks, as the trainer does on a GPU")
    parser.add_argument("--budget", type=float, default=50.0, help="seconds after which no further save is begun")
    parser.add_argument("--saves", type=int, default=4, help="saves of each kind at most")
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
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root = Path(name) / "checkpoints"
        cfg, engine = build(Path(name), options.model, keys, device)
        from neoxlite.checkpoint.background import BackgroundSaver

        steps, saver = Steps(cfg, engine, device), BackgroundSaver(engine)
        steps.many(5)
        alone = steps.many(15)
        first = beside(root, saver, steps)
        size = sum(path.stat().st_size for path in root.glob("global_step*/*.safetensors"))
        report_head(device, options, cfg, size, alone, first)
        blocking, saves = [], []
        # As many rounds as the time allows, one at the least.
        while not blocking or (len(blocking) < options.saves and _fits(started, options.budget, blocking, saves)):
            blocking.append(at_once(root, engine, steps.number))
            alone += steps.many(5)
            saves.append(beside(root, saver, steps))
            alone += steps.many(5)
        shutil.rmtree(root)
    report(alone, blocking, saves)
    print(f"{time.perf_counter() - started:.0f} s in all")


def _fits(started: float, budget: float, blocking: list[float], saves: list[tuple[float, list[float], float]]) -> bool:
    round_s = (max(blocking) + max(whole for _, _, whole in saves)) / 1000
    return time.perf_counter() - started + round_s < budget


def report_head(
    device: torch.device,
    options: argparse.Namespace,
    cfg: Any,
    size: int,
    alone: list[float],
    first: tuple[float, list[float], float],
) -> None:
    """Print what is measured, and the first save, which makes the buffers."""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    words = f"{' '.join(options.model) or '50M'}, {cfg.precision}, micro-batch {cfg.train_micro_batch_size_per_gpu}"
    print(f"{where}, torch {torch.__version__}; {words}; {size / 1e6:,.0f} MB a checkpoint; milliseconds, medians")
    print(f"the first save beside training, which makes its buffers, stood still for {first[0]:,.1f}")
    print(f"a step alone: {statistics.median(alone):.1f}", flush=True)


def report(alone: list[float], blocking: list[float], saves: list[tuple[float, list[float], float]]) -> None:
    """Print a line for each kind of save, and what they cost beside each other."""
    step, whole = statistics.median(alone), statistics.median(blocking)
    stood = statistics.median(save[0] for save in saves)
    first = statistics.median(save[1][0] for save in saves)
    during = statistics.median(time for save in saves for time in save[1])
    longer = statistics.median(sum(save[1]) - step * len(save[1]) for save in saves)
    print(f"a save at once ({len(blocking)}): stands still for {whole:,.1f}")
    print(
        f"a save beside training ({len(saves)}): stands still for {stood:,.1f}, on the disk after "
        f"{statistics.median(save[2] for save in saves):,.1f}; the first step behind it {first:.1f}, a step meanwhile "
        f"{during:.1f} ({during / step - 1:+.1%}); those {statistics.median(len(save[1]) for save in saves):.0f} steps "
        f"longer by {longer:,.1f} together"
    )
    print(f"it costs {(stood + longer) / whole:.1%} of a save at once")


if __name__ == "__main__":
    main()

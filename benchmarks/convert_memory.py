"""Memory of `neoxlite convert` and of a load in place, beside the largest group of tensors (embedding, block or head).

    python benchmarks/convert_memory.py

A checkpoint of random weights goes to Hugging Face and back, through reshard, and from two tensor ranks' slices as
GPT-NeoX writes them, Adam's state included. The same slices are loaded where they lie (``load:``) into an engine whose
own memory is there and not counted. Each runs in a process of its own that has done so with a tiny model before;
the figure is the growth of its resident memory at the highest (VmHWM of /proc/self/status), pages of files included,
divided by the largest group. The limit of the project is 1.3.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
LIMIT = 1.3


def _status(field: str) -> int:
    """Return a number of /proc/self/status in bytes."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


Work = Callable[[Path], Iterator[None]]
"""Makes ready up to its first ``yield``, and does what is measured behind it."""


def _measured(work: Work, root: Path, results: Any) -> None:
    for place in (root / "tiny", root):
        steps = work(place)
        next(steps)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before = _status("VmRSS")
        next(steps, None)
    results.put(_status("VmHWM") - before)


def growth(work: Work, root: Path) -> int:
    """Return by how many bytes a process grows at the highest while it does ``work`` on ``root``."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=_measured, args=(work, root, results))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")
    return int(results.get())


def make(root: Path, hidden: int, vocabulary: int, dtype: str) -> int:
    """Write a checkpoint of random weights and return the bytes of its largest group."""
    import torch
    import yaml

    from neoxlite.config import load_config
    from neoxlite.convert.own import NewCheckpoint, config_text, training_entry, write_checkpoint
    from neoxlite.convert.shape import parameters_of
    from neoxlite.convert.weight import Weight
    from neoxlite.model.spec import ModelSpec
    from neoxlite.optim.schedule import Schedule

    keys = {
        "num_layers": 2,
        "hidden_size": hidden,
        "num_attention_heads": 8,
        "seq_length": 128,
        "max_position_embeddings": 128,
        "pos_emb": "rotary",
        "no_weight_tying": True,
        "norm": "rmsnorm",
        "activation": "swiglu",
        "intermediate_size": 12 * hidden,
        "use_bias_in_mlp": False,
        "use_bias_in_attn_linear": False,
        "tokenizer_type": "CharLevelTokenizer",
        "padded_vocab_size": vocabulary,
        "train_micro_batch_size_per_gpu": 1,
        "train_iters": 1,
    }
    path = root / "model.yml"
    path.write_text(yaml.safe_dump(keys))
    cfg = load_config(path)
    spec = ModelSpec.from_config(cfg, vocabulary)
    weights = {}
    for name, parameter in parameters_of(spec).items():

        def rows(start: int, end: int, shape: tuple[int, ...] = parameter.shape) -> torch.Tensor:
            generator = torch.Generator().manual_seed(start)
            value = torch.randn((end - start, *shape[1:]), generator=generator) * 0.02 + (len(shape) == 1)
            return value.to(getattr(torch, dtype))

        weights[name] = Weight(parameter.shape, getattr(torch, dtype), rows)
    position = {"iteration": 1, "consumed_samples": 1, "skipped_steps": 0, "optimizer_step": 1}
    training = training_entry(spec, cfg, position=position, schedule=Schedule.from_config(cfg).state(), source="none")
    new = NewCheckpoint(1, weights, None, training, {"config.yml": config_text(cfg)})
    write_checkpoint(root / "own", new, lambda folder: None)
    groups: dict[str, int] = defaultdict(int)
    for name, weight in weights.items():
        groups[name.split(".")[0]] += weight.nbytes
    return max(groups.values())


def to_hf(root: Path) -> Iterator[None]:
    from neoxlite.convert.to_hf import export

    yield
    export(root / "own" / "global_step1", root / "hf", shard_bytes=1 << 40)


def from_hf(root: Path) -> Iterator[None]:
    from neoxlite.convert.from_hf import import_folder

    yield
    import_folder(root / "hf", root / "back")


def reshard(root: Path) -> Iterator[None]:
    from neoxlite.convert.reshard import reshard as work

    yield
    work(root / "own" / "global_step1", root / "anew")


def from_neox(root: Path) -> Iterator[None]:
    from neoxlite.convert.from_neox import convert

    yield
    convert(root / "neox", root / "from", [str(root / "model.yml")])


def in_place(root: Path) -> Iterator[None]:
    import torch

    from neoxlite.checkpoint.optimizer_state import OptimizerState
    from neoxlite.checkpoint.source import open_source
    from neoxlite.config import load_config
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.distributed import join_world, prepare
    from neoxlite.parallel.ranks import Ranks
    from neoxlite.parallel.topology import Topology
    from neoxlite.training.create import create_engine

    cpu = torch.device("cpu")
    prepare(cpu)
    if not torch.distributed.is_initialized():
        join_world(Ranks(0, 1, 0, 1, None, None, "benchmark"), cpu)
    cfg = load_config(root / "model.yml")
    engine = create_engine(cfg, ModelSpec.from_config(cfg, int(cfg.value("padded_vocab_size"))), Topology(), cpu, None)
    for fragment in OptimizerState(engine).fragments():  # its pages are there as in a run that has begun
        for tensor in (fragment.parameter, *fragment.tensors.values()):
            tensor.fill_(1.0)
    yield
    source = open_source(root / "neox" / "global_step1", cfg)
    source.verify(Topology())
    source.load_weights(engine)
    source.load_optimizer(engine)


def write_neox(root: Path) -> None:
    """Write the checkpoint as layer and mp_rank files of two tensor-parallel ranks, with Adam's moments."""
    import torch
    from safetensors.torch import load_file

    from neoxlite.config import load_config
    from neoxlite.convert.shape import parameters_of
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.slicing import Slicing

    cfg = load_config(root / "model.yml")
    vocabulary = int(cfg.value("padded_vocab_size"))
    parameters = parameters_of(ModelSpec.from_config(cfg, vocabulary))
    folder = root / "neox" / "global_step1"
    folder.mkdir(parents=True)
    for rank in range(2):
        slices: dict[str, torch.Tensor] = {}
        for path in sorted((root / "own" / "global_step1").glob("layer_*.safetensors")):
            layer, tensors = int(path.stem.removeprefix("layer_")), load_file(path)
            content = {}
            for name, tensor in tensors.items():
                one = parameters[f"{layer}.{name}"]
                cut = Slicing(one.shape, one.dim, one.parts).take(tensor, rank, 2) if one.dim is not None else tensor
                content[name] = slices[f"{layer}.{name}"] = cut.clone()
            torch.save(content, folder / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt")
        moments = {number: _moments(slices[name]) for number, name in enumerate(parameters)}
        optimizer = {"state": moments, "param_groups": [{"params": list(moments)}]}
        state = {"module": None, "optimizer": optimizer, "iteration": 1, "args": {"padded_vocab_size": vocabulary}}
        torch.save(state, folder / f"mp_rank_{rank:02d}_model_states.pt")
    (root / "neox" / "latest").write_text("global_step1")


def _moments(weight: Any) -> dict[str, Any]:
    """Return Adam's state of a parameter after a step."""
    return {"step": 1, "exp_avg": weight.float().clone(), "exp_avg_sq": weight.float().square()}


WORKS: tuple[Work, ...] = (to_hf, from_hf, reshard, from_neox, in_place)


def main() -> int:
    """Print one line for each of them and return 1 if one takes more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=51200)
    parser.add_argument("--only", choices=[work.__name__ for work in WORKS], help="one of them")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tiny").mkdir()
        for place, hidden, vocabulary in ((root / "tiny", 64, 512), (root, options.hidden, options.vocabulary)):
            largest = make(place, hidden, vocabulary, options.dtype)
            write_neox(place)
        print(f"largest group {largest / 2**20:.0f} MiB ({options.dtype})")
        for work in WORKS:
            if options.only not in (None, work.__name__):
                continue
            grown = growth(work, root)
            worst = max(worst, grown / largest)
            print(f"{work.__name__.replace('_', '-'):10} {grown / 2**20:6.0f} MiB   {grown / largest:.2f} of the group")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())

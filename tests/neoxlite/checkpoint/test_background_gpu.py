"""Saves beside training on a GPU: written is the state at the save, though the copy runs beside the next step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from forked_worlds import TINY
from safetensors.torch import load_file

pytestmark = pytest.mark.gpu

KEYS: dict[str, Any] = {**TINY, "num_layers": 8, "hidden_size": 512, "precision": "bfloat16"}
KEYS["kernels"] = {"compile_blocks": False}


@pytest.mark.parametrize("implementation", ["direct", "deepspeed"])
def test_the_copy_is_of_the_moment_of_the_save(implementation: str, tmp_path: Path) -> None:
    """A step begun at once does not change what the stream of the copies reads, for weights and optimizer state."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    path = tmp_path / "tiny.yml"
    path.write_text(yaml.safe_dump({**KEYS, "zero_optimization": {"stage": 1, "implementation": implementation}}))
    # A process of its own: DeepSpeed keeps state that outlives its process groups.
    folders = [str(Path(__file__).parents[place]) for place in (1, 3)]
    path_of_modules = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, str(path), str(tmp_path / "ck")],
        env={**os.environ, "PYTHONPATH": path_of_modules},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"


def saved(path: Path, root: Path) -> list[str]:
    """Save beside a step, and return the names of what is not as it was before the step."""
    from neoxlite.config import load_config
    from neoxlite.parallel.distributed import join_world, prepare
    from neoxlite.parallel.ranks import Ranks

    cfg = load_config(path, world_size=1)
    device = torch.device("cuda", 0)
    prepare(device)
    join_world(Ranks(), device)
    from neoxlite.checkpoint.background import BackgroundSaver
    from neoxlite.checkpoint.save import Contents
    from neoxlite.checkpoint.share import share_of
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.topology import Topology
    from neoxlite.training.create import create_engine

    engine = create_engine(cfg, ModelSpec.from_config(cfg, 512), Topology(), device, None)
    saver = BackgroundSaver(engine)
    batch = torch.randint(0, 512, (cfg.train_micro_batch_size_per_gpu, cfg.seq_length + 1))
    wrong = []
    for iteration in range(1, 6):
        engine.set_lr(0.01)
        engine.train_step([batch] * cfg.gradient_accumulation_steps, iteration)
        torch.cuda.synchronize()
        before = {file.name: {k: t.clone() for k, t in file.tensors.items()} for file in _share(engine, share_of)}
        saver.start(root, Contents({"iteration": iteration}))
        engine.train_step([batch] * cfg.gradient_accumulation_steps, iteration)
        saver.wait()
        changed = False
        now = {file.name: file.tensors for file in _share(engine, share_of)}
        for name, tensors in before.items():
            written = load_file(root / f"global_step{iteration}" / name)
            wrong += [
                f"{iteration} {name} {key}" for key, t in tensors.items() if not torch.equal(written[key], t.cpu())
            ]
            changed |= any(not torch.equal(now[name][key], t) for key, t in tensors.items())
        assert changed
    return wrong


def _share(engine: Any, share_of: Any) -> Any:
    return share_of(engine, with_optimizer=True)


if __name__ == "__main__":
    print(saved(Path(sys.argv[1]), Path(sys.argv[2])))

"""Small checkpoints of every kind of model, made without a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.neoxlite.convert.samples import BASE


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a checkpoint of random weights and returns the folder of ``save``."""

    def make(name: str = "重み", dtype: str = "float32", **keys: Any) -> Path:
        import torch

        from neoxlite.config import load_config
        from neoxlite.convert.own import NewCheckpoint, config_text, training_entry, write_checkpoint
        from neoxlite.convert.shape import parameters_of
        from neoxlite.convert.weight import of_tensor
        from neoxlite.model.spec import ModelSpec
        from neoxlite.optim.schedule import Schedule
        from neoxlite.tokenizers import build_tokenizer

        path = tmp_path / f"{name}.yml"
        path.write_text(yaml.safe_dump({**BASE, **keys}, allow_unicode=True), encoding="utf-8")
        cfg = load_config(path)
        tokenizer = build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file)
        spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(tokenizer.vocab_size))
        generator = torch.Generator().manual_seed(5)
        weights = {}
        for number, (key, parameter) in enumerate(parameters_of(spec).items()):
            # Norms around 1, everything else around 0, nothing at the value that leaves it without effect.
            center = 1.0 if key.endswith(("norm.weight", "norm.scale")) else 0.0
            value = center + 0.2 * torch.randn(parameter.shape, generator=generator) + 0.001 * number
            weights[key] = of_tensor(value.to(getattr(torch, dtype)))
        position = {"iteration": 7, "consumed_samples": 7, "skipped_steps": 0, "optimizer_step": 7}
        training = training_entry(
            spec, cfg, position=position, schedule=Schedule.from_config(cfg).state(), source="a test"
        )
        texts = {"config.yml": config_text(cfg)}
        root = tmp_path / name
        write_checkpoint(root, NewCheckpoint(7, weights, None, training, texts), lambda folder: None)
        return root

    return make

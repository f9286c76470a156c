"""Ways to look at what a configuration leads to, from cheap to a whole training."""

from __future__ import annotations

from typing import Any

from neoxlite.config import NeoxConfig
from neoxlite.config.summary import describe

VOCABULARY = 300
_TALK = ("files", "warnings", "notes", "unsupported")


def facts(cfg: NeoxConfig) -> dict[str, Any]:
    """Layout, batch, stages, parameters, FLOPs."""
    return {name: value for name, value in describe(cfg, VOCABULARY).items() if name not in _TALK}


def unsupported(cfg: NeoxConfig) -> list[str]:
    """What neoxlite refuses to train."""
    return [text.partition(": ")[2] for text in cfg.unsupported]


def model(cfg: NeoxConfig) -> tuple[list[float], float]:
    """Sums of the initial weights and the loss of a batch in training, dropout included."""
    import torch

    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.spec import ModelSpec

    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(VOCABULARY))
    network = GPTModel(spec)
    initialise(network, spec, cfg.seed)
    torch.manual_seed(0)
    tokens = torch.arange(2 * cfg.seq_length).view(2, -1) % VOCABULARY
    loss = network.train()(tokens, tokens)
    return [parameter.double().abs().sum().item() for parameter in network.parameters()], loss.item()


def recomputed(cfg: NeoxConfig) -> int:
    """Groups of blocks that are run again in the backward pass."""
    from unittest import mock

    import torch.utils.checkpoint

    with mock.patch("torch.utils.checkpoint.checkpoint", wraps=torch.utils.checkpoint.checkpoint) as checkpoint:
        model(cfg)
    return checkpoint.call_count


def schedule(cfg: NeoxConfig) -> list[float]:
    """The learning rate of each iteration."""
    from neoxlite.optim.schedule import Schedule

    rates = Schedule.from_config(cfg)
    return [rates.lr(step) for step in range(cfg.train_iters)]


def optimizer(cfg: NeoxConfig) -> list[dict[str, Any]]:
    """The settings of each group of parameters."""
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.spec import ModelSpec
    from neoxlite.optim.build import build_optimizer

    network = GPTModel(ModelSpec.from_config(cfg, cfg.padded_vocab_size(VOCABULARY)))
    groups = build_optimizer(cfg, network, fused=False).param_groups
    return [{name: value for name, value in group.items() if name != "params"} for group in groups]


def kernels(cfg: NeoxConfig) -> Any:
    """What is compiled and fused."""
    import torch

    from neoxlite.model.kernels import choose_kernels
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.topology import Topology

    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(VOCABULARY))
    return choose_kernels(cfg, spec, Topology(), torch.device("cpu"))


def who_steps(cfg: NeoxConfig) -> bool:
    """Whether neoxlite's own optimizer takes the steps of ZeRO 1."""
    import torch

    from neoxlite.optim.build import uses_direct_zero

    return uses_direct_zero(cfg, torch.device("cpu"))[0]


def engine(cfg: NeoxConfig) -> dict[str, Any]:
    """What DeepSpeed is told."""
    from neoxlite.training.deepspeed_config import deepspeed_config

    return deepspeed_config(cfg)


def kept_inputs(cfg: NeoxConfig) -> list[bool]:
    """Of the inputs of recomputed blocks: whether they are shared out over ranks, and kept on the host."""
    from unittest import mock

    import torch

    from neoxlite.model import recompute
    from neoxlite.model.kept_input import KeptInput
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.topology import Grid, Topology

    seen: list[bool] = []

    class Looking(KeptInput):
        def __init__(self, x: Any, topology: Topology, *, on_host: bool):
            seen.extend((topology.tensor_size > 1, on_host))
            super().__init__(x, Topology(), on_host=on_host)

    spec = ModelSpec.from_config(cfg, cfg.padded_vocab_size(VOCABULARY))
    with mock.patch.object(recompute, "KeptInput", Looking):
        block = torch.nn.Identity()
        x = torch.ones(1, 2, 4, requires_grad=True)
        recompute._recomputed([block], x, spec, Topology(Grid(tensor=2)))
    return seen


def loss_scales(cfg: NeoxConfig) -> list[float]:
    """The loss scale after each of some steps, of which the first five but the third overflow; up to its end."""
    import contextlib

    from neoxlite.optim.loss_scale import LossScale, LossScaleError

    scale, seen = LossScale.from_block(cfg.fp16 or {}), []
    with contextlib.suppress(LossScaleError):
        for overflow in (True, True, False, True, True, *[False] * 8):
            scale.update_scale(overflow)
            scale.settle()
            seen.append(scale.scale)
    return seen


def samples(cfg: NeoxConfig) -> dict[str, list[Any]]:
    """The first samples of each split."""
    from neoxlite.data import build_datasets

    data = build_datasets(cfg)
    return {
        name: [dataset[index].tolist() for index in range(min(8, len(dataset)))] if dataset is not None else []
        for name, dataset in (("train", data.train), ("valid", data.valid), ("test", data.test))
    }


def tokens(cfg: NeoxConfig) -> list[int]:
    """The ids of a text."""
    from neoxlite.tokenizers import build_tokenizer

    return build_tokenizer(cfg.tokenizer_type, cfg.vocab_file, cfg.merge_file).encode("def main(argument):\n    return")


def saves(cfg: NeoxConfig) -> set[int]:
    """The iterations that write a checkpoint."""
    from neoxlite.training.schedule import save_iterations

    return save_iterations(cfg)


def launching(cfg: NeoxConfig) -> Any:
    """Where and how ``neoxlite launch`` starts the ranks."""
    from neoxlite.launch.settings import Request, launch_settings

    return launch_settings(Request("train", cfg.config_paths), {"CUDA_VISIBLE_DEVICES": "", "HOME": "/nonexistent"})


def wandb(cfg: NeoxConfig) -> dict[str, Any]:
    """What the library of Weights & Biases is told, the configuration itself left out."""
    import sys
    import types
    from unittest import mock

    from neoxlite.training.wandb_log import start_wandb

    told: dict[str, Any] = {}

    def init(**keywords: Any) -> Any:
        told.update(keywords, config=None, settings=keywords["settings"])
        return types.SimpleNamespace(dir="/nowhere/files")

    library = types.SimpleNamespace(init=init, Settings=lambda **keywords: keywords)
    with mock.patch.dict(sys.modules, {"wandb": library}):
        start_wandb(cfg, lambda line: None, {"NEOXLITE_INTERNET": "0"})
    return told

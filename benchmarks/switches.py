"""Is a faster way of computing biased? Gradients and losses of each switch beside the plain eager path, in bf16.

    OMP_NUM_THREADS=1 python benchmarks/switches.py gradients              # a minute on a CPU, of a small model
    OMP_NUM_THREADS=1 python benchmarks/switches.py train --seeds 1 2 3 4 --results runs/switches.json
    python benchmarks/switches.py gradients --layers 12 --hidden 768 --length 2048 --batch 8    # a GPU's kernels

``gradients`` trains a model by the plain path, and at its weights compares the gradients of each way with fp32's of
the same weights: the length of the error, its part along the true gradient (a step too long or too short) with the
standard error over the batches, and how much of it all batches share: 1 where the errors of batches have nothing in
common, as those of rounding to nearest, and the root of their number where they are one and the same, as after a
truncation, a wrong scale or a lost term.

``train`` trains with each way on the same batches and prints the differences of the mean loss of the last 50
iterations from the plain path's, their mean and standard error over the seeds. `two micro-batches` is the plain path
with another order of roundings: what its differences scatter by is chance. The text is Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from small_texts import VOCABULARY, batches, text
from torch import Tensor

from neoxlite.model import head_loss
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.kernels import Kernels, compile_blocks, use_kernels
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.adamw import Partition, Rates, clip_coefficient, update

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LAST = 50
PLAIN, NOISE, ALL = "plain", "plain, two micro-batches", "all"


@dataclass(frozen=True)
class Way:
    """A way of computing: the switches, who takes the steps, and the micro-batches of an iteration."""

    kernels: Kernels
    direct: bool = False
    parts: int = 1


def ways() -> dict[str, Way]:
    """Return each switch alone, and all of them."""
    switches = ("compile_blocks", "fused_head_loss", "fused_gelu", "fused_rotary", "deferred_residual")
    plain = Way(Kernels())
    return {
        PLAIN: plain,
        NOISE: replace(plain, parts=2),
        **{switch: Way(_kernels(switch)) for switch in switches},
        "direct optimizer": replace(plain, direct=True),
        ALL: Way(_kernels(*switches), direct=True),
    }


def _kernels(*switches: str) -> Kernels:
    kernels = Kernels()
    for switch in switches:
        setattr(kernels, switch, True)
    return kernels


def build(seed: int, options: argparse.Namespace) -> GPTModel:
    """Return an initialised model in fp32 on the device."""
    spec = ModelSpec(
        num_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.hidden // 64,
        num_kv_heads=options.hidden // 64,
        seq_length=options.length,
        max_position_embeddings=options.length,
        padded_vocab_size=VOCABULARY,
        mlp_hidden_size=4 * options.hidden,
        init_method="small_init",
        output_layer_init_method="wang_init",
    )
    model = GPTModel(spec)
    initialise(model, spec, seed)
    return model.to(DEVICE)


def use(model: GPTModel, kernels: Kernels) -> GPTModel:
    """Have a bf16 model compute by these kernels."""
    use_kernels(model, kernels)
    model.fused_head_loss = kernels.fused_head_loss
    if kernels.compile_blocks:
        compile_blocks(model, model.spec.seq_length, DEVICE, torch.bfloat16)
    return model


def backward(model: GPTModel, batch: Tensor, parts: int = 1) -> float:
    """Add the gradients of a batch's mean loss, and return it."""
    total = 0.0
    for part in batch.to(DEVICE).chunk(parts):
        loss = model(part[:, :-1], part[:, 1:]) / parts
        torch.autograd.backward(loss)
        total += loss.item()
    return total


def train(way: Way, tokens: Tensor, seed: int, options: argparse.Namespace) -> tuple[GPTModel, list[float]]:
    """Train a model in bf16 over fp32 master weights and return it and its losses."""
    model = build(seed, options)
    step = (_direct if way.direct else _torch)(model, options)
    use(model.to(torch.bfloat16), way.kernels)
    losses = []
    for number, batch in enumerate(islice(batches(tokens, seed, options.batch, options.length), options.iterations), 1):
        warm = min(1.0, number / max(1.0, options.warmup * options.iterations))
        rate = options.lr * warm * (0.55 + 0.45 * math.cos(math.pi * number / options.iterations))
        losses.append(backward(model, batch, way.parts))
        step(rate, number)
        model.zero_grad()
    return model, losses


Step = Callable[[float, int], None]
"""Takes the learning rate and the step, counted from 1."""


def _torch(model: GPTModel, options: argparse.Namespace) -> Step:
    """Steps by torch's own AdamW and clipping."""
    parameters = list(model.parameters())
    master = [parameter.detach().clone().float() for parameter in parameters]
    optimizer = torch.optim.AdamW(master, lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

    def step(rate: float, _number: int) -> None:
        for wide, parameter in zip(master, parameters, strict=True):
            wide.grad = None if parameter.grad is None else parameter.grad.float()
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        with torch.no_grad():
            for wide, parameter in zip(master, parameters, strict=True):
                parameter.copy_(wide)

    return step


def _direct(model: GPTModel, options: argparse.Namespace) -> Step:
    """Steps by `neoxlite.optim.adamw`."""
    parameters = list(model.parameters())
    master = torch.cat([parameter.detach().float().view(-1) for parameter in parameters])
    part = Partition(master.bfloat16(), master, torch.zeros_like(master), torch.zeros_like(master))

    def step(rate: float, number: int) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float32)).square().sum().sqrt()
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        update(part, flat, clip_coefficient(norm, 1.0), Rates(rate, 0.9, 0.95, 1e-8, 0.1, number))
        with torch.no_grad():
            start = 0
            for parameter in parameters:
                parameter.copy_(part.weights.narrow(0, start, parameter.numel()).view_as(parameter))
                start += parameter.numel()

    return step


def compare_training(options: argparse.Namespace) -> None:
    """Train with each way and seed that is not in the results yet, and print the table."""
    found: dict[str, list[float]] = {}
    if options.results and options.results.exists():
        found = json.loads(options.results.read_text())
    tokens = text()
    for seed in options.seeds:
        for name, way in _chosen(options).items():
            key = f"{name}/{seed}"
            if len(found.get(key, [])) >= options.iterations:
                continue
            began = time.monotonic()
            found[key] = train(way, tokens, seed, options)[1]
            print(f"{key}: {statistics.mean(found[key][-LAST:]):.4f}, {time.monotonic() - began:.0f} s", flush=True)
            if options.results:
                options.results.write_text(json.dumps(found))
    print(f"{'mean loss of the last 50, to plain':<28}{'mean':>10}{'+-':>9}{'scatter':>9}{'n':>4}")
    for name in dict.fromkeys(key.rpartition("/")[0] for key in found):
        pairs = [(found[f"{name}/{seed}"], found.get(f"{PLAIN}/{seed}")) for seed in _seeds(found, name)]
        apart = [statistics.mean(a[-LAST:]) / statistics.mean(b[-LAST:]) - 1 for a, b in pairs if b]
        if name != PLAIN and len(apart) > 1:
            scatter = statistics.stdev(apart)
            error = scatter / math.sqrt(len(apart))
            print(f"{name:<28}{statistics.mean(apart):>+10.3%}{error:>9.3%}{scatter:>9.3%}{len(apart):>4}")


def _seeds(found: dict[str, list[float]], name: str) -> Iterator[str]:
    return (key.rpartition("/")[2] for key in found if key.rpartition("/")[0] == name)


def _chosen(options: argparse.Namespace) -> dict[str, Way]:
    return {name: way for name, way in ways().items() if not options.only or name in options.only}


def compare_gradients(options: argparse.Namespace) -> None:
    """Print the errors of each way's gradients at the weights of a trained model."""
    tokens = text()
    trained, losses = train(ways()[PLAIN], tokens, options.seeds[0], options)
    print(f"trained {len(losses)} iterations on {DEVICE.type}: loss {statistics.mean(losses[-LAST:]):.4f}")
    held = list(islice(batches(tokens, 1000, options.batch, options.length), options.batches))
    weights = trained.state_dict()
    exact = [_gradient(_copy(weights, options).float(), batch) for batch in held]
    print(f"{'to fp32, mean over the batches':<32}{'loss':>18}{'error':>9}{'along the gradient':>20}{'shared':>8}")
    for name, way in _chosen(options).items():
        if way.direct and name != ALL:  # steps are not compared here
            continue
        model = use(_copy(weights, options), way.kernels)
        found = [_gradient(model, batch, way.parts) for batch in held]
        loss = [mine[0] / true[0] - 1 for mine, true in zip(found, exact, strict=True)]
        errors = [mine[1] - true[1] for mine, true in zip(found, exact, strict=True)]
        along = [float(error @ true / true.norm() ** 2) for error, (_, true) in zip(errors, exact, strict=True)]
        size = [float(error.norm() / true.norm()) for error, (_, true) in zip(errors, exact, strict=True)]
        square = statistics.mean(float(error.norm()) ** 2 for error in errors)
        shared = float(torch.stack(errors).mean(0).norm()) * math.sqrt(len(held) / square)
        print(f"{name:<32}{_mean(loss):>18}{statistics.mean(size):>9.3%}{_mean(along):>20}{shared:>8.2f}", flush=True)


def _copy(weights: dict[str, Tensor], options: argparse.Namespace) -> GPTModel:
    model = build(1, options).to(torch.bfloat16)
    model.load_state_dict(weights)
    return model


def _gradient(model: GPTModel, batch: Tensor, parts: int = 1) -> tuple[float, Tensor]:
    """Return the loss and all gradients, flat."""
    model.zero_grad()
    loss = backward(model, batch, parts)
    return loss, torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


def _mean(column: list[float]) -> str:
    """Return mean and standard error in per cent."""
    return f"{statistics.mean(column):+.3%} +-{statistics.stdev(column) / math.sqrt(len(column)):.3%}"


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gradients", "train"))
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=4, help="sequences of an iteration")
    parser.add_argument("--batches", type=int, default=16, help="on which gradients are compared")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the iterations")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", metavar="WAY", help="names as printed")
    parser.add_argument("--results", type=Path, metavar="FILE", help="losses, kept: a later call goes on with the rest")
    options = parser.parse_args()
    # Two stretches a micro-batch, as the 65,536 tokens of 125M at micro-batch 32 have.
    head_loss._TOKENS_AT_ONCE = options.batch * options.length // 2
    (compare_gradients if options.what == "gradients" else compare_training)(options)


if __name__ == "__main__":
    main()

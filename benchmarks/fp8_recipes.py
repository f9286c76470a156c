"""What the ways of casting to fp8 do to the products and to the loss of a small GPT, emulated on a CPU.

    OMP_NUM_THREADS=1 python benchmarks/fp8_recipes.py errors          # minutes
    OMP_NUM_THREADS=1 python benchmarks/fp8_recipes.py train --seeds 1 2 --results fp8.json

``errors`` prints how far each recipe moves loss and gradient of the small model, before and after it was trained in
bf16; how far the products of its blocks are from fp64, on the trained model's own tensors; and the error of sums in the
tensor cores' accumulator by their length. ``train`` trains with each recipe on the same batches and prints the mean
loss of the last 50 iterations beside bf16's; `fp32` and `bf16, two micro-batches` say how far roundings alone move it.
The text is Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fp8_products import BF16, E4M3, Operand, Recipe, all_recipes, linears, product_of, truncated_product, use
from small_texts import LENGTH, VOCABULARY, batches, text
from torch import Tensor, nn

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.spec import ModelSpec

LAST = 50


def small_model(seed: int, layers: int, hidden: int) -> GPTModel:
    """Return an initialised model in fp32, with heads of 64 features."""
    spec = ModelSpec(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        num_kv_heads=hidden // 64,
        seq_length=LENGTH,
        max_position_embeddings=LENGTH,
        padded_vocab_size=VOCABULARY,
        mlp_hidden_size=4 * hidden,
        init_method="small_init",
        output_layer_init_method="wang_init",
    )
    model = GPTModel(spec)
    initialise(model, spec, seed)
    return model


def train(model: GPTModel, tokens: Tensor, recipe: Recipe, seed: int, iterations: int, parts: int = 1) -> list[float]:
    """Train a model and return its losses; ``parts`` micro-batches an iteration."""
    use(model, recipe)
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    source, losses = batches(tokens, seed), []
    for iteration in range(iterations):
        warm = min(1.0, (iteration + 1) / 20)
        rate = warm * (0.55 + 0.45 * math.cos(math.pi * iteration / iterations))
        optimizer.param_groups[0]["lr"] = 1e-3 * rate
        total = 0.0
        for part in next(source).chunk(parts):
            loss = _loss(model, part) / parts
            torch.autograd.backward(loss)
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def compare_training(options: argparse.Namespace) -> None:
    """Train with each recipe and seed that is not in the results yet, and print the table."""
    known: dict[str, list[float]] = {}
    if options.results and options.results.exists():
        known = json.loads(options.results.read_text())
    runs = {name: (recipe, 1) for name, recipe in all_recipes().items()}
    runs["bf16, two micro-batches"] = (runs["bf16"][0], 2)
    names = [name for name in runs if not options.only or name in options.only]
    tokens = text()
    for seed in options.seeds:
        for name in names:
            key = f"{name}/{seed}"
            if key not in known:
                began = time.monotonic()
                model = small_model(seed, options.layers, options.hidden)
                known[key] = train(model, tokens, runs[name][0], seed, options.iterations, runs[name][1])
                print(f"{key}: {statistics.mean(known[key][-LAST:]):.4f}, {time.monotonic() - began:.0f} s", flush=True)
                if options.results:
                    options.results.write_text(json.dumps(known))
    seeds = sorted({key.rpartition("/")[2] for key in known})
    print(f"{'mean loss of the last 50, to bf16':<42}" + "".join(f"{'seed ' + seed:>10}" for seed in seeds))
    for name in dict.fromkeys(key.rpartition("/")[0] for key in known):
        cells = ""
        for seed in seeds:
            pair = known.get(f"{name}/{seed}"), known.get(f"bf16/{seed}")
            found = [statistics.mean(curve[-LAST:]) for curve in pair if curve]
            cells += f"{found[0] / found[1] - 1:>+10.2%}" if len(found) == 2 else f"{'':>10}"
        print(f"{name:<42}{cells}")


def compare_errors(options: argparse.Namespace) -> None:
    """Print how far each recipe is from fp64 on tensors of a trained model."""
    recipes = {name: recipe for name, recipe in all_recipes().items() if not options.only or name in options.only}
    tokens = text()
    print("initial weights")
    model = small_model(options.seeds[0], options.layers, options.hidden)
    _whole_model(recipes, model, tokens)
    losses = train(model, tokens, all_recipes()["bf16"], options.seeds[0], options.iterations)
    print(f"trained {options.iterations} iterations in bf16: loss {statistics.mean(losses[-LAST:]):.4f}")
    _whole_model(recipes, model, tokens)
    use(model, all_recipes()["bf16"])
    batch = next(batches(tokens, 1000))
    captured: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
    for kind, layer, _, _ in linears(model):
        layer.register_forward_hook(_capturing(captured.setdefault(kind, [])))
    torch.autograd.backward(_loss(model, batch))
    print(f"{'relative error, %: out / grad_x / grad_w':<42}" + "".join(f"{kind:>21}" for kind in captured))
    for name, recipe in recipes.items():
        cells = [_errors(recipe, tensors) for tensors in captured.values()]
        print(f"{name:<42}" + "".join(f"{' / '.join(f'{error:.2%}'[:-1] for error in cell):>21}" for cell in cells))
    _sums()


def _capturing(kept: list[Any]) -> Callable[..., None]:
    def hook(layer: Any, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        if torch.is_grad_enabled():
            out.retain_grad()
            kept.append((inputs[0].detach().flatten(0, 1), layer.weight.detach(), out))

    return hook


def _errors(recipe: Recipe, tensors: list[tuple[Tensor, Tensor, Tensor]]) -> list[float]:
    """Means over the blocks of the relative errors of the three products."""
    rows = []
    for x, w, y in tensors:
        assert y.grad is not None
        g = y.grad.flatten(0, 1).to(BF16).float()
        x, w = (tensor.to(BF16).float().requires_grad_() for tensor in (x, w))
        out = product_of(recipe)(x, w, torch.zeros(len(w)))
        torch.autograd.backward(out, g)
        wide = [tensor.detach().double() for tensor in (x, w, g)]
        wanted = (wide[0] @ wide[1].t(), wide[2] @ wide[1], wide[2].t() @ wide[0])
        pairs = zip((out.detach(), x.grad, w.grad), wanted, strict=True)
        rows.append([float((a.double() - b).norm() / b.norm()) for a, b in pairs if a is not None])
    return [statistics.mean(column) for column in zip(*rows, strict=True)]


def _whole_model(recipes: dict[str, Recipe], model: GPTModel, tokens: Tensor) -> None:
    """Print the loss under each recipe and the gradient's distance from fp32's: all of it, and the matrices' mean."""
    held = [next(batches(tokens, 2000 + number)) for number in range(4)]
    exact: dict[str, Tensor] = {}
    print(f"{'to fp32':<42}{'loss':>9}{'gradient':>10}{'matrices':>10}")
    for name, recipe in {"fp32": all_recipes()["fp32"], **recipes}.items():
        use(model, recipe)
        model.zero_grad()
        loss = torch.stack([_loss(model, batch) for batch in held]).mean()
        torch.autograd.backward(loss)
        found = {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}
        found["loss"] = loss.detach()
        exact = exact or dict(found)
        off = {key: float((found[key] - exact[key]).norm()) for key in found}
        size = {key: float(exact[key].norm()) for key in found}
        more = float(found.pop("loss") / exact["loss"]) - 1
        whole = math.hypot(*(off[key] for key in found)) / math.hypot(*(size[key] for key in found))
        matrices = statistics.mean(off[key] / size[key] for key in found if found[key].dim() == 2)
        print(f"{name:<42}{more:>+9.3%}{whole:>10.2%}{matrices:>10.2%}", flush=True)


def _loss(model: GPTModel, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch[:, :-1], batch[:, 1:])
    return loss


def _sums() -> None:
    """Print the error of the fast accumulator alone by the length of the sums: inputs are e4m3 already."""
    generator = torch.Generator().manual_seed(0)
    print(f"{'sums of':<10}{'normal':>10}{'GELU':>10}    error by the accumulator of 13 bits alone")
    for length in (256, 1024, 2048, 8192):
        cells = []
        for activate in (lambda x: x, nn.functional.gelu):
            a, b = (torch.randn(256, length, generator=generator) for _ in range(2))
            a, b = (Operand(E4M3).cast(tensor)[0].float() for tensor in (activate(a), b))
            wanted = a.double() @ b.double().t()
            cells.append(float((truncated_product(a, b) - wanted).norm() / wanted.norm()))
        print(f"{length:<10}{cells[0]:>10.2%}{cells[1]:>10.2%}")


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("errors", "train"))
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="names as printed")
    parser.add_argument("--results", type=Path, metavar="FILE", help="losses, kept: a later call goes on with the rest")
    options = parser.parse_args()
    (compare_errors if options.what == "errors" else compare_training)(options)


if __name__ == "__main__":
    main()

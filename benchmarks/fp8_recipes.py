"""What the ways of casting to fp8 do to the products and to the loss of a small GPT, emulated on a CPU.

    OMP_NUM_THREADS=1 python benchmarks/fp8_recipes.py errors          # minutes
    OMP_NUM_THREADS=1 python benchmarks/fp8_recipes.py train --seeds 1 2 --results fp8.json

``errors`` prints how far each recipe moves loss and gradient of the small model, before and after it was trained in
bf16; how far the products of its blocks are from fp64, on the trained model's own tensors; and the error of sums in the
tensor cores' accumulator by their length. ``train`` trains with each recipe on the same batches and prints the mean
loss of the last 50 iterations beside bf16's; `fp32` and `bf16, two micro-batches` say how far roundings alone move it.
The text is Python's standard library.

Values are really cast; sums are in fp32, and where a recipe says so by steps of 32 into an accumulator of 13 fraction
bits that truncates, which is how a Hopper GPU adds fp8 with ``use_fast_accum`` (DeepSeek-V3, arXiv 2412.19437, 3.5.2).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.layers import Block
from neoxlite.model.spec import ModelSpec

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
LENGTH, BATCH, VOCABULARY = 256, 2, 2048
LAST = 50


@dataclass(frozen=True)
class Operand:
    """How one side of a product is cast: its dtype, and what shares a scale: a tensor, a row, or a block."""

    dtype: torch.dtype
    shares: str = "tensor"

    def cast(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Cast (rows, inner), and return the values and their factors; a ``square`` is a block of 128 rows.

        Values of fp8 are in bf16, which holds them exactly and multiplies fast, unless the factors differ in a row.
        """
        if self.dtype in (torch.float32, BF16):
            return x.to(self.dtype), 1.0
        x = x.to(BF16).float()
        factor = _largest(x, self.shares).clamp(min=1e-30) / torch.finfo(self.dtype).max
        values = (x / factor).to(self.dtype)
        return (values.to(BF16), factor) if self.shares in ("tensor", "row") else (values.float() * factor, 1.0)


def _largest(x: Tensor, shares: str) -> Tensor:
    """The largest absolute value of what shares a scale, in a shape that x can be divided by."""
    if shares == "tensor":
        return x.abs().amax()
    if shares == "row":
        return x.abs().amax(-1, keepdim=True)
    rows = 128 if shares == "square" else 1
    padded = nn.functional.pad(x.abs(), (0, -x.shape[1] % 128, 0, -x.shape[0] % rows))
    tiles = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // 128, 128).amax((1, 3))
    return tiles.repeat_interleave(rows, 0).repeat_interleave(128, 1)[: x.shape[0], : x.shape[1]]


@dataclass(frozen=True)
class Recipe:
    """The operands of the three products of a linear layer: forward, gradient of x, gradient of the weight."""

    x: Operand
    w: Operand
    g: Operand
    w_back: Operand
    g_weight: Operand
    x_weight: Operand
    fast: bool = False
    """The forward product adds in the tensor cores' accumulator."""
    first: int = 0
    """So many of the first blocks stay in bf16."""
    last: int = 0
    """So many of the last."""


def _alike(x: Operand, w: Operand, g: Operand, **more: Any) -> Recipe:
    return Recipe(x, w, g, w, g, x, **more)


def _recipes() -> dict[str, Recipe]:
    high, a4, a5 = Operand(BF16), Operand(E4M3), Operand(E5M2)
    row4, row5 = Operand(E4M3, "row"), Operand(E5M2, "row")
    block, square = Operand(E4M3, "block"), Operand(E4M3, "square")
    bf16 = _alike(high, high, high)
    tensor = _alike(a4, a4, a5, fast=True)
    exact = replace(tensor, fast=False)
    e4m3 = replace(exact, g=a4, g_weight=a4)
    weight: dict[str, Any] = {"g_weight": high, "x_weight": high}
    rows = _alike(row4, row4, row4)
    return {
        "fp32": _alike(*[Operand(torch.float32)] * 3),
        "bf16": bf16,
        "tensor, fast sums (shipped)": tensor,
        "tensor": exact,
        "tensor, e4m3 gradients": e4m3,
        "tensor, weight gradients in bf16": replace(exact, **weight),
        "tensor, e4m3, weight gradients in bf16": replace(e4m3, **weight),
        "rows, e5m2 gradients": _alike(row4, row4, row5),
        "rows": rows,
        "rows, weight gradients in bf16": replace(rows, **weight),
        "blocks of 128": Recipe(block, square, block, square, block, block),
        "tensor, first and last block in bf16": replace(exact, first=1, last=1),
        "tensor, e4m3, first and last block in bf16": replace(e4m3, first=1, last=1),
        "tensor, e4m3, first block in bf16": replace(e4m3, first=1),
        "tensor, e4m3, last block in bf16": replace(e4m3, last=1),
        "tensor, e4m3, two first blocks in bf16": replace(e4m3, first=2),
        "tensor, e4m3, four first blocks in bf16": replace(e4m3, first=4),
        "rows, first and last block in bf16": replace(rows, first=1, last=1),
        "forward in bf16": replace(bf16, g=a4, w_back=a4, g_weight=a4, x_weight=a4),
        "backward in bf16": replace(bf16, x=a4, w=a4),
    }


def multiply(a: Tensor, b: Tensor, of_a: Operand, of_b: Operand, *, fast: bool = False) -> Tensor:
    """Return a @ b.T of fp32 matrices (rows, inner) and (columns, inner), each cast first; in fp32."""
    (a, a_factor), (b, b_factor) = of_a.cast(a), of_b.cast(b)
    out = truncated_product(a.float(), b.float()) if fast else (a @ b.t()).float()
    factor = a_factor * (b_factor.t() if isinstance(b_factor, Tensor) and b_factor.dim() else b_factor)
    return out * factor


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor, recipe: Recipe) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        return _rounded(multiply(x, w, recipe.x, recipe.w, fast=recipe.fast) + bias, recipe)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        recipe = ctx.recipe
        grad_x = multiply(grad, w.t(), recipe.g, recipe.w_back)
        grad_w = multiply(grad.t(), x.t(), recipe.g_weight, recipe.x_weight)
        return _rounded(grad_x, recipe), _rounded(grad_w, recipe), grad.sum(0), None


def _rounded(x: Tensor, recipe: Recipe) -> Tensor:
    return x if recipe.x.dtype is torch.float32 else x.to(BF16).float()


def truncated_product(a: Tensor, b: Tensor, step: int = 32) -> Tensor:
    """Return a @ b.T by steps of the inner dimension into an accumulator that keeps 13 fraction bits."""
    total = a.new_zeros(a.shape[0], b.shape[0])
    for first in range(0, a.shape[1], step):
        total = total + a[:, first : first + step] @ b[:, first : first + step].t()
        total = (total.view(torch.int32) & ~0x3FF).view(torch.float32)
    return total


def product_of(recipe: Recipe) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Return what computes ``x @ w.T + bias`` for `neoxlite.parallel.linear`."""

    def product(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), w, bias, recipe)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)

    return product


def linears(model: nn.Module) -> Iterator[tuple[str, Any, int, int]]:
    """Yield the matrices of the blocks: a name, the layer, how many blocks stand before its own, and how many after."""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for number, block in enumerate(blocks):
        layers = {
            "query_key_value": block.attention.query_key_value,
            "dense": block.attention.dense,
            "linear1": block.mlp.linear1,
            "linear2": block.mlp.linear2,
        }
        for kind, layer in layers.items():
            yield kind, layer, number, len(blocks) - 1 - number


def use(model: nn.Module, recipe: Recipe) -> None:
    """Have the blocks of a model compute by a recipe."""
    for _, layer, before, after in linears(model):
        outer = before < recipe.first or after < recipe.last
        layer.product = product_of(_recipes()["bf16"] if outer else recipe)


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


def text(mib: float = 6) -> Tensor:
    """Return the tokens of Python's standard library, in the order of paths, by a BPE of it."""
    from tokenizers import ByteLevelBPETokenizer

    files, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts and size < mib * 2**20:
            files.append(path.read_text(encoding="utf-8", errors="replace"))
            size += len(files[-1])
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(files, vocab_size=VOCABULARY, show_progress=False)
    return torch.cat([torch.tensor(tokenizer.encode(file).ids, dtype=torch.long) for file in files])


def batches(tokens: Tensor, seed: int, count: int = BATCH, length: int = LENGTH) -> Iterator[Tensor]:
    """Yield (count, length + 1) stretches at places that the seed draws."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        places = torch.randint(0, len(tokens) - length - 1, (count,), generator=generator)
        yield torch.stack([tokens[place : place + length + 1] for place in places.tolist()])


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
    runs = {name: (recipe, 1) for name, recipe in _recipes().items()}
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
    recipes = {name: recipe for name, recipe in _recipes().items() if not options.only or name in options.only}
    tokens = text()
    print("initial weights")
    model = small_model(options.seeds[0], options.layers, options.hidden)
    _whole_model(recipes, model, tokens)
    losses = train(model, tokens, _recipes()["bf16"], options.seeds[0], options.iterations)
    print(f"trained {options.iterations} iterations in bf16: loss {statistics.mean(losses[-LAST:]):.4f}")
    _whole_model(recipes, model, tokens)
    use(model, _recipes()["bf16"])
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
    for name, recipe in {"fp32": _recipes()["fp32"], **recipes}.items():
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

"""Linear layers fused with what follows, deferred sums and fp8, against fp64. Kernels on a GPU: test_kernels_gpu.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fp64_references import query_key_value, relative_error
from torch import Tensor

from neoxlite.model import fp8
from neoxlite.model.fused import linear_gelu, qkv_rotary
from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initialise
from neoxlite.model.kernels import Kernels, use_kernels
from neoxlite.model.layers import Block
from neoxlite.model.rotary import Rotary
from neoxlite.model.spec import ModelSpec


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Normal fp32 tensors that take gradients."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def exact(tensors: list[Tensor]) -> list[Tensor]:
    """The same in fp64."""
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def assert_gradients_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Within fp32's rounding."""
    for tensor, reference in zip(found, wanted, strict=True):
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad.double(), reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tanh", [False, True], ids=["erf", "tanh"])
@pytest.mark.parametrize("biased", [True, False])
def test_linear_gelu(tanh: bool, biased: bool) -> None:
    """Value and gradients by torch's own functions in fp64."""
    tensors = leaves((3, 5, 8), (24, 8), (24,))[: 3 if biased else 2]
    out = linear_gelu(*tensors[:2], tensors[2] if biased else None, tanh=tanh)
    references = exact(tensors)
    wanted = F.gelu(F.linear(*references), approximate="tanh" if tanh else "none")
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=5e-6)  # nine terms of up to 10, rounded to fp32
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    (out * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert_gradients_equal(tensors, references)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)], ids=["all heads", "grouped"])
@pytest.mark.parametrize("rotated", [8, 2], ids=["whole", "partial"])
def test_qkv_rotary(heads: int, kv_heads: int, rotated: int) -> None:
    """q, k, v and gradients by complex numbers in fp64, for both orders of the matrix's rows."""
    size, batch, length = 8, 2, 6
    rows = (heads + 2 * kv_heads) * size
    tensors = leaves((batch, length, 16), (rows, 16), (rows,))
    tables = Rotary(rotated, 100.0).tables(length, torch.device("cpu"), torch.float32)
    parts = qkv_rotary(*tensors, tables, (heads, kv_heads))
    references = exact(tensors)
    wanted = query_key_value(*references, (heads, kv_heads), size, (rotated, 100.0))
    total = exact_total = torch.zeros((), dtype=torch.float64)
    for number, (part, reference) in enumerate(zip(parts, wanted, strict=True), start=1):
        torch.testing.assert_close(part.double(), reference, rtol=1e-4, atol=1e-5)
        weights = torch.linspace(-number, 1, part.numel()).double().view(part.shape)
        total = total + (part * weights).sum()
        exact_total = exact_total + (reference * weights).sum()
    total.backward()
    exact_total.backward()
    assert_gradients_equal(tensors, references)


@pytest.mark.parametrize(("recipe", "smallest", "largest"), [("careful", 0.03, 0.05), ("fastest", 0.05, 0.08)])
def test_fp8_products_are_within_their_format(recipe: str, smallest: float, largest: float) -> None:
    """Of normal factors e4m3 (3 bits of mantissa) rounds 2.6 % off in the mean square, e5m2 (2 bits) 5.2 %.

    The error of a product is the root of its factors' squares: 3.7 % of two in e4m3, 5.8 % with a gradient in e5m2.
    """
    x, weight, bias = leaves((4, 16, 64), (32, 64), (32,))
    out = fp8.linear(x, weight, bias, recipe=recipe)
    references = exact([x, weight, bias])
    wanted = F.linear(*references)
    grad = leaves((4, 16, 32))[0].detach()
    out.backward(grad)
    wanted.backward(grad.double())
    assert 0.03 < relative_error(out, wanted) < 0.05
    assert smallest < relative_error(x.grad, references[0].grad) < largest
    assert smallest < relative_error(weight.grad, references[1].grad) < largest
    assert relative_error(bias.grad, references[2].grad) < 1e-6


def test_fp8_scales_take_the_largest_value() -> None:
    """The largest value becomes the format's largest, whatever its size; zeros stay zeros."""
    for size in (1e-6, 1.0, 1e6):
        cast, transposed, factor = fp8.quantize(torch.tensor([[0.5, -1.0], [0.0, 0.25]]) * size, torch.float8_e4m3fn)
        assert cast.float().tolist() == [[224.0, -448.0], [0.0, 112.0]]
        assert transposed.float().tolist() == [[224.0, 0.0], [-448.0, 112.0]]
        assert factor.item() == pytest.approx(size / 448)
    assert fp8.quantize(torch.zeros(2, 2), torch.float8_e5m2)[0].float().abs().sum() == 0


def loss_and_gradients(model: GPTModel, kernels: Kernels) -> list[Any]:
    """The loss of fixed tokens, and every parameter's gradient."""
    use_kernels(model, kernels)
    model.zero_grad()
    tokens = torch.randint(0, 64, (2, 33), generator=torch.Generator().manual_seed(1))
    loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])
def test_a_model_learns_the_same(parallel: bool, config_of: Any) -> None:
    """Loss and every gradient with all that is fused and deferred; with fp8 near them."""
    spec = ModelSpec.from_config(config_of(gpt_j_residual=parallel), 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    plain = loss_and_gradients(model, Kernels())
    fused = Kernels(fused_gelu=True, fused_rotary=True, deferred_residual=True)
    torch.testing.assert_close(loss_and_gradients(model, fused), plain, rtol=1e-4, atol=1e-6)
    coarse = loss_and_gradients(model, Kernels(fused_gelu=True, fused_rotary=True, fp8="fastest"))
    assert coarse[0].item() == pytest.approx(plain[0].item(), rel=5e-3)
    assert all(
        relative_error(found, wanted.double()) < 0.2 for found, wanted in zip(coarse[1:], plain[1:], strict=True)
    )


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize(("recipe", "casts"), [("careful", [0, 8, 8, 8]), ("fastest", [8, 8, 8, 8])])
def test_which_blocks_are_in_fp8(
    recipe: str, casts: list[int], fused: bool, config_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block in fp8 casts x and weight of four matrices."""
    spec = ModelSpec.from_config(config_of(num_layers=4), 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    use_kernels(model, Kernels(fused_gelu=fused, fused_rotary=fused, fp8=recipe))
    quantize, cast = fp8.quantize, []
    monkeypatch.setattr(fp8, "quantize", lambda *args: cast.append(args[0].shape) or quantize(*args))
    counts = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        block(torch.randn(1, 32, spec.hidden_size))
        counts.append(len(cast) - sum(counts))
    assert counts == casts


def test_how_many_blocks_are_spared() -> None:
    """A sixth, which is 4 blocks at 1.3B and 5 at 2.7B, and one at least."""
    careful, fastest = fp8.RECIPES["careful"], fp8.RECIPES["fastest"]
    assert [careful.first_block(blocks) for blocks in (2, 12, 24, 32)] == [1, 2, 4, 5]
    assert fastest.first_block(24) == 0

"""Kernels on a GPU, against fp64 and against DeepSpeed's own optimizer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from fp64_references import query_key_value, relative_error
from torch import Tensor

from neoxlite.model import fp8
from neoxlite.model.fused import linear_gelu, qkv_rotary
from neoxlite.model.gpt import GPTModel
from neoxlite.model.head_loss import head_loss
from neoxlite.model.init import initialise
from neoxlite.model.kernels import Kernels, compile_blocks, use_kernels
from neoxlite.model.rotary import Rotary
from neoxlite.model.spec import ModelSpec
from neoxlite.optim.adamw import Partition, Rates, clip_coefficient, update

pytestmark = pytest.mark.gpu


@pytest.fixture
def cuda() -> torch.device:
    """The GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")


@pytest.mark.parametrize("vocabulary", [50304, 4100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_head_loss(vocabulary: int, dtype: torch.dtype, cuda: torch.device) -> None:
    """Loss and gradients of 700 tokens against fp64; bf16 within its rounding."""
    torch.manual_seed(0)
    x = torch.randn(7, 100, 256, device=cuda).to(dtype).requires_grad_()
    matrix = (torch.randn(vocabulary, 256, device=cuda) * 0.05).to(dtype).requires_grad_()
    labels = torch.randint(0, vocabulary, (7, 100), device=cuda)
    loss = head_loss(x, matrix, labels, None)
    (loss * 0.5).backward()
    exact_x, exact_matrix = (tensor.detach().double().requires_grad_() for tensor in (x, matrix))
    exact = F.cross_entropy((exact_x @ exact_matrix.t()).view(-1, vocabulary), labels.view(-1))
    (exact * 0.5).backward()
    tolerance = 1e-5 if dtype is torch.float32 else 2e-3
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    for found, wanted in ((x.grad, exact_x.grad), (matrix.grad, exact_matrix.grad)):
        assert found is not None
        assert wanted is not None
        error = (found.double() - wanted).norm() / wanted.norm()
        assert error < (1e-3 if dtype is torch.float32 else 1e-2)


@pytest.mark.parametrize("sizes", [(4096, 160, 48), (1000, 7, 33)], ids=["aligned", "odd"])
def test_adamw_by_table_and_flat(sizes: tuple[int, ...], cuda: torch.device) -> None:
    """Three steps over several parameters: by the table, flat, and by torch's operations, from the same gradients."""
    from neoxlite.optim.triton_adamw import GradientTable

    torch.manual_seed(0)
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    total = sum(sizes)

    def part(device: torch.device) -> Partition:
        master = torch.arange(total, dtype=torch.float32, device=device) / total
        return Partition(master.to(torch.bfloat16), master, torch.zeros_like(master), torch.zeros_like(master))

    parameters = [torch.nn.Parameter(torch.zeros(size, device=cuda, dtype=torch.bfloat16)) for size in sizes]
    table = GradientTable(parameters, starts)
    by_table, flat, reference = part(cuda), part(cuda), part(torch.device("cpu"))
    for step in range(1, 4):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        gradient = torch.cat([parameter.grad for parameter in parameters if parameter.grad is not None])
        rates = Rates(1e-2, 0.9, 0.95, 1e-8, 0.1, step)
        coefficient = clip_coefficient(gradient.float().norm(), 1.0)
        table.update(by_table, coefficient, rates)
        update(flat, gradient, coefficient, rates)
        update(reference, gradient.cpu(), coefficient.cpu(), rates)
    for found in (by_table, flat):
        torch.testing.assert_close(found.master.cpu(), reference.master, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.exp_avg_sq.cpu(), reference.exp_avg_sq, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(found.weights.cpu(), found.master.cpu().to(torch.bfloat16), rtol=0, atol=0)
    total_gradient = torch.zeros(total, device=cuda)
    table.accumulate(total_gradient, first=True)
    table.accumulate(total_gradient, first=False)
    torch.testing.assert_close(total_gradient, 2 * gradient.float())
    before = by_table.master.clone()
    table.update(by_table, torch.full((), float("nan"), device=cuda), Rates(1e-2, 0.9, 0.95, 1e-8, 0.1, 4))
    assert torch.equal(by_table.master, before)


def leaves(dtype: torch.dtype, device: torch.device, *shapes: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Normal tensors that take gradients, and the same in fp64; matrices scaled so that products are normal too."""
    torch.manual_seed(1)
    tensors = [torch.randn(shape, device=device) * (shape[1] ** -0.5 if len(shape) == 2 else 1) for shape in shapes]
    tensors = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    return tensors, [tensor.detach().double().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("tanh", [False, True], ids=["erf", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1024, 776], ids=["whole", "odd"])
def test_linear_gelu(tanh: bool, dtype: torch.dtype, width: int, cuda: torch.device) -> None:
    """Value and gradients of 700 tokens; bf16 within its rounding."""
    tensors, references = leaves(dtype, cuda, (7, 100, 256), (width, 256), (width,))
    out = linear_gelu(*tensors, tanh=tanh)
    wanted = F.gelu(F.linear(*references), approximate="tanh" if tanh else "none")
    grad = torch.randn_like(out)
    out.backward(grad)
    wanted.backward(grad.double())
    tolerance = 1e-3 if dtype is torch.float32 else 1e-2
    assert relative_error(out, wanted) < tolerance
    for found, reference in zip(tensors, references, strict=True):
        assert relative_error(found.grad, reference.grad) < tolerance


@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=["all heads", "grouped"])
@pytest.mark.parametrize(("size", "turned"), [(64, 64), (80, 80), (64, 16)], ids=["64", "80", "partial"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_qkv_rotary(heads: tuple[int, int], size: int, turned: int, dtype: torch.dtype, cuda: torch.device) -> None:
    """q, k, v and gradients of 7 sequences of 100 tokens; gradients in the layout of attention, and in another."""
    rows = (heads[0] + 2 * heads[1]) * size
    tensors, references = leaves(dtype, cuda, (7, 100, 256), (rows, 256), (rows,))
    tables = Rotary(turned, 10000.0).tables(100, cuda, torch.float32 if dtype is torch.float32 else dtype)
    parts = qkv_rotary(*tensors, tables, heads)
    wanted = query_key_value(*references, heads, size, (turned, 10000.0))
    grads = [torch.randn_like(part) for part in parts]
    grads[1] = grads[1].contiguous()
    torch.autograd.backward(parts, grads)
    torch.autograd.backward(wanted, [grad.double() for grad in grads])
    tolerance = 1e-3 if dtype is torch.float32 else 1e-2
    for found, reference in zip(parts, wanted, strict=True):
        assert relative_error(found, reference) < tolerance
    for leaf, reference in zip(tensors, references, strict=True):
        assert relative_error(leaf.grad, reference.grad) < tolerance


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("shape", [(512, 256), (304, 144)], ids=["tiles", "rest"])
def test_fp8_cast(dtype: torch.dtype, shape: tuple[int, int], cuda: torch.device) -> None:
    """Casts as torch does, and the transposed is the same; the factor's last bit may round one in a thousand apart."""
    torch.manual_seed(2)
    x = torch.randn(shape, device=cuda).to(torch.bfloat16)
    cast, transposed, factor = fp8.quantize(x, dtype)
    limit = torch.finfo(dtype).max
    wanted = (x.float() / factor).clamp(-limit, limit).to(dtype).float()
    assert (cast.float() != wanted).float().mean() < 1e-3
    assert cast.float().abs().max() == limit
    assert torch.equal(transposed.float(), cast.float().t())


@pytest.mark.parametrize(("recipe", "largest"), [("careful", 0.05), ("fastest", 0.08)])
def test_fp8_linear(recipe: str, largest: float, cuda: torch.device) -> None:
    """Of normal factors: 3.7 % of two in e4m3, 5.8 % of e4m3 and e5m2 (`test_fused.py`); the bias is half of `out`."""
    if torch.cuda.get_device_capability(cuda) < (8, 9):
        pytest.skip("no fp8")
    tensors, references = leaves(torch.bfloat16, cuda, (8, 64, 256), (512, 256), (512,))
    out, wanted = fp8.linear(*tensors, recipe=recipe), F.linear(*references)
    grad = torch.randn_like(out)
    out.backward(grad)
    wanted.backward(grad.double())
    assert 0.02 < relative_error(out, wanted) < 0.03
    for found, reference in zip(tensors[:2], references[:2], strict=True):
        assert 0.03 < relative_error(found.grad, reference.grad) < largest
    assert relative_error(tensors[2].grad, references[2].grad) < 1e-2


@pytest.mark.parametrize("recipe", ["careful", "fastest"])
@pytest.mark.parametrize("what", ["linear", "gelu", "rotary"])
def test_fp8_is_what_a_cpu_computes(what: str, recipe: str, cuda: torch.device) -> None:
    """Value and gradients beside the same casts on the CPU: a wrong scale, of which kernels find some, shows."""
    if torch.cuda.get_device_capability(cuda) < (8, 9):
        pytest.skip("no fp8")
    tensors, _ = leaves(torch.bfloat16, cuda, (4, 64, 256), (768, 256), (768,))
    copies = [tensor.detach().cpu().requires_grad_() for tensor in tensors]

    def compute(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        if what == "linear":
            return [fp8.linear(x, weight, bias, recipe=recipe)]
        if what == "gelu":
            return [linear_gelu(x, weight, bias, tanh=False, fp8=recipe)]
        tables = Rotary(64, 10000.0).tables(64, x.device, torch.bfloat16)
        return list(qkv_rotary(x, weight, bias, tables, (4, 4), fp8=recipe))

    found, wanted = compute(*tensors), compute(*copies)
    grads = [torch.randn_like(part) for part in found]
    torch.autograd.backward(found, grads)
    torch.autograd.backward(wanted, [grad.cpu() for grad in grads])
    pairs = [*zip(found, wanted, strict=True), *((a.grad, b.grad) for a, b in zip(tensors, copies, strict=True))]
    for one, other in pairs:
        assert one is not None
        assert relative_error(one.cpu(), other) < 0.02


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of torch's compiler
@pytest.mark.parametrize("recipe", [None, "careful", "fastest"])
def test_a_compiled_model(recipe: str | None, cuda: torch.device) -> None:
    """Loss and gradients of three blocks, all fused and compiled, against the same weights in fp64, plain.

    On a CPU, with the rest in fp32, the largest error of a gradient is 7.6 % (careful) and 13.3 % (fastest).
    """
    spec = ModelSpec(
        num_layers=3,
        hidden_size=256,
        num_attention_heads=4,
        num_kv_heads=4,
        seq_length=128,
        max_position_embeddings=128,
        padded_vocab_size=512,
        mlp_hidden_size=1024,
    )
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    model = model.to(cuda, torch.bfloat16)
    exact = GPTModel(spec)
    exact.load_state_dict(model.state_dict())
    exact = exact.double()
    tokens = torch.randint(0, 512, (4, 129), generator=torch.Generator().manual_seed(1))
    use_kernels(model, Kernels(fused_gelu=True, fused_rotary=True, deferred_residual=True, fp8=recipe))
    model.fused_head_loss = True
    compile_blocks(model, 128, cuda, torch.bfloat16)
    loss, wanted = model(tokens[:, :-1].to(cuda), tokens[:, 1:].to(cuda)), exact(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=2e-3)
    for (name, parameter), reference in zip(model.named_parameters(), exact.parameters(), strict=True):
        error = relative_error(None if parameter.grad is None else parameter.grad.cpu(), reference.grad)
        assert error < {None: 0.05, "careful": 0.12, "fastest": 0.18}[recipe], (name, error)

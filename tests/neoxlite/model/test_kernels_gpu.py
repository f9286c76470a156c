"""Kernels on a GPU, against fp64 and against DeepSpeed's own optimizer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from neoxlite.model.head_loss import head_loss
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

"""The kernels of a sliced head's loss on a GPU, slice by slice in one process, against fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [50304, 4100])
def test_slices_of_logits(vocabulary: int, dtype: torch.dtype) -> None:
    """Losses and gradients of 300 tokens, whose targets lie in both slices; bf16 within its rounding."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from neoxlite.model.triton_loss import log_sum_and_target, write_gradients

    generator = torch.Generator("cuda").manual_seed(1)
    logits = (3 * torch.randn(300, vocabulary, device="cuda", generator=generator)).to(dtype)
    targets = torch.randint(vocabulary, (300,), device="cuda", generator=generator)
    weights = torch.rand(300, device="cuda", generator=generator)
    exact = logits.double().requires_grad_()
    losses = F.cross_entropy(exact, targets, reduction="none") * weights
    losses.sum().backward()
    half = vocabulary // 2
    slices = [(logits[:, first : first + half].contiguous(), targets - first) for first in (0, half)]
    found = torch.stack([log_sum_and_target(part, local) for part, local in slices])
    log_sums, at_target = found[:, 0].logsumexp(0), found[:, 1].sum(0)
    torch.testing.assert_close(((log_sums - at_target) * weights).double(), losses.detach(), rtol=1e-5, atol=1e-5)
    for part, local in slices:
        write_gradients(part, local, weights, log_sums)
    assert exact.grad is not None
    tolerance = 1e-5 if dtype is torch.float32 else 4e-3
    joined = torch.cat([part for part, _ in slices], dim=1).double()
    torch.testing.assert_close(joined, exact.grad, rtol=tolerance, atol=1e-7)

"""Head and loss in one over a sliced vocabulary, on real ranks, against torch's over the whole in fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

VOCABULARY = 48


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Activations (3, 8, 16), a matrix with logits that overflow as exponentials, labels of all slices, a mask."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 8, 16, generator=generator)
    matrix = 20 * torch.randn(VOCABULARY, 16, generator=generator)
    labels = torch.randint(0, VOCABULARY, (3, 8), generator=generator)
    labels[0, :4] = torch.tensor([0, 23, 24, 47])
    return x, matrix, labels, (torch.rand(3, 8, generator=generator) > 0.3).float()


def sliced(ranks: Any, sequence: bool, masked: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return loss, the same without gradients, and the gradients of this rank's activations and slice."""
    import neoxlite.model.head_loss as module
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology

    module._TOKENS_AT_ONCE = 10
    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(tensor=ranks.world_size), ranks.rank, sequence_parallel=sequence)
    x, matrix, labels, mask = inputs()
    if sequence:
        x = x.chunk(ranks.world_size, 1)[ranks.rank].contiguous()
    mine = matrix.chunk(ranks.world_size)[ranks.rank].clone().requires_grad_()
    x.requires_grad_()
    arguments = (x, mine, labels, mask if masked else None, topology)
    loss = module.head_loss(*arguments)
    (loss * 0.25).backward()
    with torch.no_grad():
        again = module.head_loss(*arguments)
    leave_world()
    assert x.grad is not None
    assert mine.grad is not None
    return loss.detach(), again, x.grad, mine.grad


@pytest.mark.parametrize(
    ("size", "sequence", "masked"),
    [(2, False, True), (4, True, False), *(pytest.param(4, False, m, marks=pytest.mark.full) for m in (True, False))],
)
def test_loss_and_gradients_are_exact(size: int, sequence: bool, masked: bool, world: Any) -> None:
    """In stretches of 10 tokens, with a gradient from outside that is not 1; logits of 80 round by 1e-5 in fp32."""
    x, matrix, labels, mask = inputs()
    exact_x, exact_matrix = (tensor.double().requires_grad_() for tensor in (x, matrix))
    losses = F.cross_entropy((exact_x @ exact_matrix.t()).flatten(0, 1), labels.flatten(), reduction="none")
    weights = mask.flatten().double() if masked else torch.ones(24, dtype=torch.float64)
    expected = (losses * weights).sum() / weights.sum()
    (expected * 0.25).backward()
    assert exact_x.grad is not None
    assert exact_matrix.grad is not None
    for rank, (loss, again, grad_x, grad_matrix) in enumerate(world.run(size, sliced, sequence, masked)):
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=0)
        assert again == loss
        own_x = exact_x.grad.chunk(size, 1)[rank] if sequence else exact_x.grad
        torch.testing.assert_close(grad_x.double(), own_x, rtol=1e-4, atol=5e-6)
        torch.testing.assert_close(grad_matrix.double(), exact_matrix.grad.chunk(size)[rank], rtol=1e-4, atol=5e-6)


@pytest.mark.ci
def test_a_run_of_slices_with_all_that_is_fused(train: Any) -> None:
    """The whole trainer, asked for on CPUs: losses and norms of one process without."""
    kernels = dict.fromkeys(("fused_head_loss", "fused_gelu", "fused_rotary", "deferred_residual"), True)
    plain = train(1)
    fused = train(2, model_parallel_size=2, kernels=kernels)
    assert fused.losses == pytest.approx(plain.losses, rel=1e-5)
    assert fused.grad_norms == pytest.approx(plain.grad_norms, rel=1e-5)

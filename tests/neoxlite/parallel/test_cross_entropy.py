"""Cross entropy over a sliced vocabulary against torch's over the whole, on two real ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from neoxlite.parallel.cross_entropy import sliced_cross_entropy
from neoxlite.parallel.topology import Grid, create_topology


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    logits = 200 * torch.randn(7, 10)  # exp() of these overflows without the maximum taken off
    return logits, torch.tensor([0, 4, 5, 9, 9, 2, 7]), torch.randn(7)


def _sliced(ranks: Any) -> tuple[torch.Tensor, torch.Tensor]:
    from neoxlite.parallel.distributed import join_world, leave_world

    join_world(ranks, torch.device("cpu"))
    logits, labels, weights = _inputs()
    mine = logits.chunk(2, -1)[ranks.rank].clone().requires_grad_()
    losses = sliced_cross_entropy(mine, labels, create_topology(Grid(tensor=2), ranks.rank))
    (losses * weights).sum().backward()
    leave_world()
    return losses.detach(), mine.grad


def test_losses_and_gradients_equal_torch_s(world: Any) -> None:
    """Labels in both halves, borders included, and logits whose exponentials overflow."""
    logits, labels, weights = _inputs()
    logits.requires_grad_()
    expected = F.cross_entropy(logits, labels, reduction="none")
    (expected * weights).sum().backward()
    for rank, (losses, gradient) in enumerate(world.run(2, _sliced)):
        torch.testing.assert_close(losses, expected.detach())
        torch.testing.assert_close(gradient, logits.grad.chunk(2, -1)[rank])

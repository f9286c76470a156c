"""A micro-batch whose tokens are all masked."""

from __future__ import annotations

import pytest
import torch

from neoxlite.model.head_loss import head_loss
from neoxlite.model.loss import token_loss
from neoxlite.parallel.topology import Topology


@pytest.mark.parametrize("fused", [False, True])
def test_where_nothing_counts_the_loss_and_its_gradients_are_zero(fused: bool) -> None:
    """With eod_mask_loss, sequences of padding by the end of document are such; 0 / 0 would spoil the whole step."""
    x, matrix = (torch.randn(*shape, requires_grad=True) for shape in ((2, 4, 8), (16, 8)))
    labels, mask = torch.randint(0, 16, (2, 4)), torch.zeros(2, 4, dtype=torch.bool)
    loss = head_loss(x, matrix, labels, mask) if fused else token_loss(x @ matrix.t(), labels, mask, Topology())
    loss.backward()
    assert loss.item() == 0
    for tensor in (x, matrix):
        assert tensor.grad is not None
        assert not tensor.grad.any()

"""Dropout masks: their share, and what they depend on."""

from __future__ import annotations

import torch

from neoxlite.model.dropout import dropout, head_dropout


def test_the_share_and_the_mean_are_right() -> None:
    """A tenth of the elements is zero, the others are scaled so that the mean stays; gradients follow the mask."""
    torch.manual_seed(1)
    x = torch.ones(4, 100, 50, requires_grad=True)
    out = dropout(x, 0.1, "here")
    out.sum().backward()
    assert abs((out == 0).float().mean().item() - 0.1) < 0.01
    assert abs(out.mean().item() - 1) < 0.01
    torch.testing.assert_close(x.grad, out.detach())


def test_a_sample_keeps_its_mask_in_another_micro_batch() -> None:
    """Samples 2 and 3 have the same masks as rows 2 and 3 of one micro-batch, and as rows 0 and 1 of the next."""
    torch.manual_seed(100)
    together = dropout(torch.ones(4, 64), 0.5, "here")
    torch.manual_seed(102)
    assert torch.equal(dropout(torch.ones(2, 64), 0.5, "here"), together[2:])


def test_a_head_keeps_its_mask_on_another_tensor_rank() -> None:
    """Heads 2 and 3 of four drop the same whether a rank holds all heads or these two."""
    torch.manual_seed(100)
    together = head_dropout(torch.ones(2, 4, 16, 16), 0.5, 3, 0)
    assert torch.equal(head_dropout(torch.ones(2, 2, 16, 16), 0.5, 3, 2), together[:, 2:])


def test_places_seeds_and_rows_draw_their_own() -> None:
    """No two of them share a mask, and none depends on what was drawn before."""
    torch.manual_seed(100)
    first = dropout(torch.ones(2, 64), 0.5, "1/mlp")
    torch.rand(10)
    assert torch.equal(dropout(torch.ones(2, 64), 0.5, "1/mlp"), first)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(dropout(torch.ones(2, 64), 0.5, "2/mlp"), first)
    torch.manual_seed(200)
    assert not torch.equal(dropout(torch.ones(2, 64), 0.5, "1/mlp"), first)

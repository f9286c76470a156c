"""The whole model on one stage: the layer list run in order, with the loss inside the module.

The loss belongs inside: a parameter used behind the module's output would silently get a zero gradient from DeepSpeed's
BF16_Optimizer, which clears the low-precision gradients in a hook on that output.
"""

from __future__ import annotations

from torch import Tensor, nn

from neoxlite.model.cache import KeyValueCache
from neoxlite.model.head_loss import head_loss
from neoxlite.model.layers import Block, Head, TiedHead, build_layers
from neoxlite.model.loss import token_loss
from neoxlite.model.recompute import run_layers
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology


class GPTModel(nn.Module):
    """A GPT-NeoX model; parameters are named ``<layer index>.<GPT-NeoX's name>``, as ``2.attention.dense.weight``.

    The parameters are uninitialised memory until `neoxlite.model.init.initialise` or a checkpoint fills them.
    """

    def __init__(self, spec: ModelSpec, topology: Topology | None = None):
        super().__init__()
        self.spec = spec
        self.topology = topology if topology is not None else Topology()
        for index, layer in enumerate(build_layers(spec, self.topology)):
            self.add_module(str(index), layer)
        self.fused_head_loss = False
        """Whether the loss is computed together with the head (`neoxlite.model.head_loss`)."""

    @property
    def layers(self) -> list[nn.Module]:
        """The layer list, in order."""
        return list(self.children())

    def forward(self, tokens: Tensor, labels: Tensor | None = None, loss_mask: Tensor | None = None) -> Tensor:
        """Return logits (batch, length, padded vocabulary / tp), or with ``labels`` the mean loss (fp32 scalar, nats).

        Args:
            tokens: (batch, length) integers.
            labels: (batch, length) next tokens.
            loss_mask: (batch, length) weights of the tokens in the mean; None counts all alike.
        """
        embedding, *middle, head = self.layers
        x = run_layers(middle, embedding(tokens), self.spec, self.topology)
        if labels is not None and self.fused_head_loss:
            assert isinstance(head, Head | TiedHead)
            return head_loss(x, head.matrix, labels, loss_mask, self.topology)
        logits: Tensor = head(x)
        return logits if labels is None else token_loss(logits, labels, loss_mask, self.topology)

    def generate_step(self, tokens: Tensor, cache: KeyValueCache) -> Tensor:
        """Return the logits (batch, padded vocabulary) behind the last of ``tokens`` and put them into ``cache``."""
        embedding, *middle, head = self.layers
        x = embedding(tokens, cache.length)
        for layer in middle:
            x = layer(x, cache) if isinstance(layer, Block) else layer(x)
        cache.advance(tokens.shape[1])
        logits: Tensor = head(x[:, -1:])
        return logits[:, 0]

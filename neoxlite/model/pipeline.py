"""One pipeline stage: a stretch of the layer list in DeepSpeed's PipelineModule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from torch import Tensor

from neoxlite.model.head_loss import head_loss
from neoxlite.model.layers import Embedding, TiedOutput, layer_list
from neoxlite.model.loss import token_loss
from neoxlite.model.naming import TIED_KEY
from neoxlite.model.recompute import run_layers
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.distributed import quiet_stdout
from neoxlite.parallel.topology import Topology

Labels = Tensor | tuple[Tensor, Tensor]
"""What a micro-batch is to predict, alone or with the weights of its tokens."""


class PipelineStage(PipelineModule):  # type: ignore[misc] # DeepSpeed has no types
    """The layers of this rank's stage; parameters are named as in `neoxlite.model.naming.layer_parameters`.

    Args:
        bounds: stage i holds the layers from ``bounds[i]`` up to, not including, ``bounds[i + 1]``.
    """

    def __init__(self, spec: ModelSpec, topology: Topology, bounds: Sequence[int]):
        self.bounds = list(bounds)
        grid = topology.grid
        with quiet_stdout():
            super().__init__(
                layers=_layer_specs(spec, topology),
                topology=PipeModelDataParallelTopology(grid.pipeline, grid.tensor, grid.data),
                loss_fn=self._loss,
            )
        self.spec = spec
        self.topology_of_ranks = topology
        self.before_micro_batch: Callable[[], None] | None = None
        """Called before each forward pass."""
        self.labels: Labels | None = None
        """On the last stage with `fuse_head_loss`: what the next forward pass is to predict."""

    def fuse_head_loss(self) -> None:
        """Have the last stage compute its loss together with the head (`neoxlite.model.head_loss`), from `labels`.

        Inside of the module: DeepSpeed's BF16_Optimizer clears the gradient of a weight that is used behind its output.
        """
        self.loss_fn = None  # DeepSpeed then takes what the last stage returns

    @property
    def fused_head_loss(self) -> bool:
        """Whether `fuse_head_loss` was called."""
        return self.loss_fn is None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, length) on the first stage, else activations -> activations; on the last stage logits or loss.

        Recomputation is `run_layers`'s and not PipelineModule's: it is the same whatever the layout, and the
        embedding, whose input has no gradient, stays out of it.
        """
        if self.before_micro_batch is not None:
            self.before_micro_batch()
        if self.labels is None:
            return run_layers(self.forward_funcs, x, self.spec, self.topology_of_ranks)
        *layers, head = self.forward_funcs
        (targets, mask), self.labels = _split(self.labels), None
        x = run_layers(layers, x, self.spec, self.topology_of_ranks)
        return head_loss(x, head.matrix, targets, mask, self.topology_of_ranks)

    def _partition_layers(self, method: str = "") -> None:
        """Set this stage's layers. DeepSpeed's own way knows our classes' names, not GPT-NeoX's."""
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = self.bounds
        self._set_bounds(start=self.bounds[stage], stop=self.bounds[stage + 1])

    def _synchronize_tied_weights(self) -> None:
        """Do nothing: initialisation and checkpoints give every stage with the matrix the same."""

    def _loss(self, logits: Tensor, labels: Labels) -> Tensor:
        return token_loss(logits, *_split(labels), self.topology_of_ranks)


def _split(labels: Labels) -> tuple[Tensor, Tensor | None]:
    return labels if isinstance(labels, tuple) else (labels, None)


def _layer_specs(spec: ModelSpec, topology: Topology) -> list[LayerSpec]:
    specs = []
    for kind, args in layer_list(spec, topology):
        if spec.tied_head and kind in (Embedding, TiedOutput):
            specs.append(TiedLayerSpec(TIED_KEY, kind, *args, tied_weight_attr="word_embeddings.weight"))
        else:
            specs.append(LayerSpec(kind, *args))
    return specs

"""Compiled blocks of slices: collectives inside one graph, and the numbers of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

Found = tuple[Tensor, dict[str, Tensor]]


def step(model: torch.nn.Module) -> Found:
    """Return loss and gradients of the model on some tokens."""
    tokens = torch.randint(0, 64, (2, 33), generator=torch.Generator().manual_seed(1))
    model.zero_grad()
    loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compiled(ranks: Any, cfg: Any, fused: bool) -> tuple[Found, Found, int, int]:
    """Return what slices find, what compiled ones find, and the numbers of graphs and of breaks in them."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.kernels import Kernels, compile_blocks, use_kernels
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.collectives import sum_gradients_of_parts
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.parallel.topology import Grid, create_topology

    join_world(ranks, torch.device("cpu"))
    grid = Grid(tensor=ranks.world_size)
    topology = create_topology(grid, ranks.rank, sequence_parallel=cfg.sequence_parallel)
    spec = ModelSpec.from_config(cfg, 64)
    model = GPTModel(spec, topology)
    initialise(model, spec, 1, topology)
    sum_gradients_of_parts(model, topology)
    plain = step(model)
    use_kernels(model, Kernels(fused_gelu=fused, fused_rotary=fused, deferred_residual=fused))
    model.fused_head_loss = fused
    compile_blocks(model, 32, torch.device("cpu"), torch.float32, backend="aot_eager")
    torch._dynamo.reset()
    counters.clear()
    step(model)
    again = step(model)
    leave_world()
    return plain, again, counters["stats"]["unique_graphs"], len(counters["graph_break"])


LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "num_kv_heads": 2, "intermediate_size": 192, "mlp_multiple_of": 8}


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's tracing reads it
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's tracing does it
@pytest.mark.parametrize(
    ("size", "fused", "changes"),
    [
        (2, True, {}),
        pytest.param(2, False, {"sequence_parallel": True}, marks=pytest.mark.full),
        pytest.param(4, True, {"gpt_j_residual": True}, marks=pytest.mark.full),
        pytest.param(2, False, LLAMA, marks=pytest.mark.full),
        pytest.param(2, False, {**LLAMA, "sequence_parallel": True}, marks=pytest.mark.full),
    ],
)
def test_one_graph_with_the_numbers_of_one_process(
    size: int, fused: bool, changes: dict[str, Any], world: Any, config_of: Any
) -> None:
    """All blocks share one graph without a break; loss and gradients are those of slices and of one process."""
    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.slicing import slicing_of

    cfg = config_of(size, model_parallel_size=size, **changes)
    spec = ModelSpec.from_config(cfg, 64)
    whole = GPTModel(spec)
    initialise(whole, spec, 1)
    loss, gradients = step(whole)
    slicings = {name: slicing_of(parameter) for name, parameter in whole.named_parameters()}
    for rank, (plain, found, graphs, breaks) in enumerate(world.run(size, compiled, cfg, fused)):
        assert (graphs, breaks) == (1, 0)
        torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found[0], loss, rtol=1e-5, atol=0)
        for name, slicing in slicings.items():
            own = gradients[name] if slicing is None else slicing.take(gradients[name], rank, size)
            torch.testing.assert_close(found[1][name], own, rtol=1e-4, atol=1e-6)


def test_slices_choose_what_the_whole_does(config_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA all of it; where parts of a sequence are gathered between norm and matrix, not the fused functions."""
    from neoxlite.model.kernels import choose_kernels
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.topology import Grid, Topology

    monkeypatch.setattr("neoxlite.model.kernels.why_no_triton", lambda _: None)
    for sequence in (False, True):
        cfg = config_of(2, model_parallel_size=2, sequence_parallel=sequence)
        topology = Topology(Grid(tensor=2), sequence_parallel=sequence)
        chosen = choose_kernels(cfg, ModelSpec.from_config(cfg, 64), topology, torch.device("cuda"))
        assert chosen.compile_blocks
        assert chosen.fused_head_loss
        assert chosen.deferred_residual
        assert (chosen.fused_gelu, chosen.fused_rotary) == (not sequence, not sequence)
        assert chosen.notes == []

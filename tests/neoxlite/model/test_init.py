"""Initial weights: their spread, and their independence of the layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from neoxlite.model.gpt import GPTModel
from neoxlite.model.init import initial_value, initialise, normal_std
from neoxlite.model.naming import layer_parameters
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.sharding import value_of
from neoxlite.parallel.slicing import sliced_parameter
from neoxlite.parallel.topology import Grid, Topology, create_topology

SIZES: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_kv_heads": 4,
    "seq_length": 16,
    "max_position_embeddings": 16,
    "padded_vocab_size": 512,
    "mlp_hidden_size": 256,
}


def spec_of(**changes: Any) -> ModelSpec:
    """Return a small model with changes."""
    return ModelSpec(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("method", "std"),
    [
        ("normal", 0.02),
        ("scaled_normal", 0.02 / math.sqrt(64)),
        ("single_residual_scaled_normal", 0.02 / math.sqrt(32)),
        ("small_init", 0.0125),
        ("wang_init", 0.0012352647110032733),
    ],
)
def test_standard_deviations_of_the_2_7b_model(method: str, std: float) -> None:
    """GPT-NeoX's formulas at 32 layers and hidden size 2560, with the values computed for its 2-7B model."""
    assert normal_std(method, spec_of(num_layers=32, hidden_size=2560)) == pytest.approx(std, rel=1e-9)


def test_each_matrix_is_drawn_with_its_own_method() -> None:
    """Matrices into the residual stream take the output method, all others the input method; norms 1, biases 0."""
    spec = spec_of(init_method="normal", output_layer_init_method="scaled_normal", init_method_std=0.1)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    stds = {name: parameter.std().item() for name, parameter in model.named_parameters() if parameter.dim() == 2}
    for name, std in stds.items():
        output = name.endswith(("attention.dense.weight", "linear2.weight"))
        assert std == pytest.approx(0.1 / math.sqrt(8) if output else 0.1, rel=0.05), name
    vectors = {name: parameter for name, parameter in model.named_parameters() if parameter.dim() == 1}
    assert all(torch.all(vector == (0.0 if name.endswith("bias") else 1.0)) for name, vector in vectors.items())


def test_a_slice_is_the_slice_of_the_full_matrix() -> None:
    """Two tensor-parallel ranks together begin with exactly the matrix that one rank begins with."""
    spec = spec_of()
    name, shape = "2.mlp.linear1.weight", (256, 64)
    slices = []
    for rank in range(2):
        topology = Topology(Grid(tensor=2), rank)
        layer = torch.nn.Module()
        layer.weight = sliced_parameter(shape, 0, topology, "test")
        model = torch.nn.Module()
        model.add_module("2", torch.nn.ModuleDict({"mlp": torch.nn.ModuleDict({"linear1": layer})}))
        initialise(model, spec, 5, topology)
        slices.append(layer.weight.detach())
    assert torch.equal(torch.cat(slices), initial_value(name, shape, spec, 5))


def test_seed_and_name_decide_the_draw() -> None:
    """The same seed and name give the same matrix; another seed or another layer gives another."""
    spec = spec_of()
    draw = initial_value("2.attention.dense.weight", (8, 8), spec, 1)
    assert torch.equal(draw, initial_value("2.attention.dense.weight", (8, 8), spec, 1))
    assert not torch.equal(draw, initial_value("3.attention.dense.weight", (8, 8), spec, 1))
    assert not torch.equal(draw, initial_value("2.attention.dense.weight", (8, 8), spec, 2))


def test_orthogonal_and_xavier() -> None:
    """Orthogonal rows of length sqrt(2), scaled by the depth if asked; xavier's variance is 2 / (rows + columns)."""
    name = "2.attention.query_key_value.weight"
    square = initial_value(name, (32, 32), spec_of(init_method="orthogonal"), 1)
    torch.testing.assert_close(square @ square.T, 2 * torch.eye(32), atol=1e-5, rtol=0)
    scaled = initial_value(name, (32, 32), spec_of(init_method="scaled_orthogonal"), 1)
    torch.testing.assert_close(scaled @ scaled.T, 2 / 4 * torch.eye(32), atol=1e-5, rtol=0)
    for method in ("xavier_normal", "xavier_uniform"):
        drawn = initial_value(name, (256, 64), spec_of(init_method=method), 1)
        assert drawn.var().item() == pytest.approx(2 / 320, rel=0.05)


def _sharded(ranks: Any, cfg: Any) -> tuple[int, int, int, dict[str, float]]:
    """Return elements that stand whole after construction, those in shards, those of the model, and sums of weights."""
    from neoxlite.parallel.distributed import join_world, leave_world
    from neoxlite.training.engine import built_in_shards  # imports DeepSpeed

    join_world(ranks, torch.device("cpu"))
    topology = create_topology(Grid(1, cfg.data_parallel_size, cfg.model_parallel_size), ranks.rank)
    spec = ModelSpec.from_config(cfg, 512)
    with built_in_shards(cfg, topology):
        model = GPTModel(spec, topology)
    whole = sum(parameter.numel() for parameter in model.parameters())
    shards = sum(parameter.ds_tensor.numel() for parameter in model.parameters())
    initialise(model, spec, cfg.seed, topology)
    sums = {name: value_of(one, topology).double().abs().sum().item() for name, one in layer_parameters(model)}
    total = sum(parameter.ds_numel for parameter in model.parameters())
    leave_world()
    return whole, shards, total, sums


def test_stage_3_never_holds_the_whole_model(world: Any, config_of: Callable[..., Any]) -> None:
    """Two replicas have halves of every parameter once it is built, of the initial weights of one process."""
    cfg = config_of(2, zero_optimization={"stage": 3})
    found = world.run(2, _sharded, cfg)
    assert found[0] == found[1]
    whole, shards, total, sums = found[0]
    assert whole == 0
    assert shards == pytest.approx(total / 2, rel=0.01)  # a parameter of odd length is padded
    spec = ModelSpec.from_config(cfg, 512)
    model = GPTModel(spec)
    initialise(model, spec, cfg.seed)
    assert sums == {name: one.detach().double().abs().sum().item() for name, one in layer_parameters(model)}

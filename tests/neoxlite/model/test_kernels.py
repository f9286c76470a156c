"""The faster ways of computing the same: head and loss in one, compiled blocks. On a GPU: test_kernels_gpu.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import neoxlite.model.head_loss
from neoxlite.errors import ConfigError
from neoxlite.model.gpt import GPTModel
from neoxlite.model.head_loss import head_loss
from neoxlite.model.init import initialise
from neoxlite.model.kernels import Kernels, choose_kernels, compile_blocks, use_kernels
from neoxlite.model.spec import ModelSpec
from neoxlite.parallel.topology import Topology


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Activations (3, 7, 16), a matrix of 50 tokens, labels, and a mask with holes."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 7, 16, generator=generator).to(dtype).requires_grad_()
    matrix = torch.randn(50, 16, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(0, 50, (3, 7), generator=generator)
    mask = (torch.rand(3, 7, generator=generator) > 0.3).float()
    return x, matrix, labels, mask


@pytest.mark.parametrize("at_once", [4, 100], ids=["in parts", "at once"])
@pytest.mark.parametrize("masked", [False, True])
def test_head_loss_and_gradients_are_exact(at_once: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch's cross entropy in fp64, with a gradient from outside that is not 1."""
    monkeypatch.setattr(neoxlite.model.head_loss, "_TOKENS_AT_ONCE", at_once)
    x, matrix, labels, mask = inputs(torch.float32)
    (head_loss(x, matrix, labels, mask if masked else None) * 0.25).backward()
    exact_x, exact_matrix = (tensor.detach().double().requires_grad_() for tensor in (x, matrix))
    losses = F.cross_entropy((exact_x @ exact_matrix.t()).view(-1, 50), labels.view(-1), reduction="none")
    weights = mask.view(-1).double() if masked else torch.ones(21, dtype=torch.float64)
    loss = (losses * weights).sum() / weights.sum()
    (loss * 0.25).backward()
    with torch.no_grad():
        torch.testing.assert_close(head_loss(x, matrix, labels, mask if masked else None).double(), loss)
    assert x.grad is not None
    assert matrix.grad is not None
    torch.testing.assert_close(x.grad.double(), exact_x.grad, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(matrix.grad.double(), exact_matrix.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_learns_the_same_with_it(tied: bool, config_of: Any) -> None:
    """Loss and every gradient of a small model, fused and not."""
    spec = ModelSpec.from_config(config_of(no_weight_tying=not tied), 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    tokens = torch.randint(0, 64, (2, 33), generator=torch.Generator().manual_seed(1))
    found = []
    for model.fused_head_loss in (False, True):
        model.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's tracing reads it
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's tracing does it
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_all_blocks_share_one_graph(fused: bool, config_of: Any) -> None:
    """Torch traces one block for training and one for evaluation, whole; beyond 8 it would give up without a word."""
    import torch._dynamo

    spec = ModelSpec.from_config(config_of(num_layers=10), 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    tokens = torch.randint(0, 64, (2, 33), generator=torch.Generator().manual_seed(1))
    plain = model(tokens[:, :-1], tokens[:, 1:])
    use_kernels(model, Kernels(fused_gelu=fused, fused_rotary=fused, deferred_residual=fused))
    compile_blocks(model, 32, torch.device("cpu"), torch.float32, backend="eager")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for _ in range(2):
        torch.testing.assert_close(model(tokens[:, :-1], tokens[:, 1:]), plain)
    with torch.no_grad():
        model.eval()
        torch.testing.assert_close(model(tokens[:, :-1], tokens[:, 1:]), plain.detach())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's tracing reads it
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's tracing does it
def test_blocks_in_fp8_share_a_graph(config_of: Any) -> None:
    """Spared blocks have one graph and those in fp8 another, whole; gradients are those of blocks not compiled."""
    import torch._dynamo

    spec = ModelSpec.from_config(config_of(num_layers=3), 64)
    model = GPTModel(spec)
    initialise(model, spec, seed=1)
    use_kernels(model, Kernels(fused_gelu=True, fused_rotary=True, deferred_residual=True, fp8="careful"))
    tokens = torch.randint(0, 64, (2, 33), generator=torch.Generator().manual_seed(1))
    found = []
    for compiled in (False, True):
        if compiled:
            compile_blocks(model, 32, torch.device("cpu"), torch.float32, backend="aot_eager")
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
        model.zero_grad()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert not torch._dynamo.utils.counters["graph_break"]


def test_choice(config_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU nothing that is not asked for; on CUDA all that goes, and a line for each that does not."""
    cfg = config_of()
    spec = ModelSpec.from_config(cfg, 64)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    chosen = choose_kernels(cfg, spec, Topology(), cpu)
    assert not chosen.compile_blocks
    assert not chosen.fused_head_loss
    assert chosen.notes == []
    monkeypatch.setattr("neoxlite.model.kernels.why_no_triton", lambda _: None)
    chosen = choose_kernels(cfg, spec, Topology(), cuda)
    assert chosen.compile_blocks
    assert chosen.fused_head_loss
    monkeypatch.setattr("neoxlite.model.kernels.why_no_triton", lambda _: "Triton is not installed")
    chosen = choose_kernels(cfg, spec, Topology(), cuda)
    assert not chosen.compile_blocks
    assert [note.partition(",")[0] for note in chosen.notes] == [
        "without kernels.compile_blocks",
        "without kernels.fused_head_loss",
    ]
    asked = config_of(kernels={"fused_head_loss": True})
    with pytest.raises(ConfigError, match=r"kernels\.fused_head_loss: true cannot be: Triton is not installed"):
        choose_kernels(asked, spec, Topology(), cuda)
    dropping = config_of(hidden_dropout=0.1)
    dropping_spec = ModelSpec.from_config(dropping, 64)
    assert "dropout" in choose_kernels(dropping, dropping_spec, Topology(), cuda).notes[0]
    # DeepSpeed gathers a module's weights when it runs: compiled blocks and the fused head would see none.
    monkeypatch.setattr("neoxlite.model.kernels.why_no_triton", lambda _: None)
    chosen = choose_kernels(config_of(2, zero_optimization={"stage": 3}), spec, Topology(), cuda)
    assert not any((chosen.compile_blocks, chosen.fused_head_loss, chosen.fused_gelu, chosen.fused_rotary))
    assert len(chosen.notes) == 2


def test_choice_of_what_is_fused(config_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA what the model has a use for; what cannot be is refused by its key; fp8 only when asked for."""
    cuda = torch.device("cuda")
    monkeypatch.setattr("neoxlite.model.kernels.why_no_triton", lambda _: None)

    def choose(**changes: Any) -> Any:
        cfg = config_of(**changes)
        return choose_kernels(cfg, ModelSpec.from_config(cfg, 64), Topology(), cuda)

    chosen = choose()
    assert (chosen.fused_gelu, chosen.fused_rotary, chosen.deferred_residual, chosen.fp8) == (True, True, True, None)
    assert chosen.notes == []
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    assert choose(precision="bfloat16", kernels={"fp8": True}).fp8 == "careful"
    assert choose(precision="bfloat16", kernels={"fp8": True, "fp8_recipe": "fastest"}).fp8 == "fastest"
    assert choose(kernels={"fp8_recipe": "fastest"}).fp8 is None
    chosen = choose(activation="relu", pos_emb="learned", checkpoint_activations=True)
    assert (chosen.fused_gelu, chosen.fused_rotary, chosen.deferred_residual) == (False, False, False)
    assert chosen.notes == []
    for changes, problem in (
        ({"precision": "fp32", "kernels": {"fp8": True}}, "kernels.fp8: true cannot be: precision fp32"),
        ({"activation": "relu", "kernels": {"fused_gelu": True}}, "kernels.fused_gelu: true cannot be: activation"),
        ({"pos_emb": "none", "kernels": {"fused_rotary": True}}, "kernels.fused_rotary: true cannot be: pos_emb none"),
        ({"seq_length": 33, "max_position_embeddings": 64, "kernels": {"fp8": True}}, "kernels.fp8: true cannot be: "),
    ):
        with pytest.raises(ConfigError, match=problem):
            choose(**changes)


def test_a_run_with_it(train: Any) -> None:
    """The whole trainer, asked for on a CPU: the losses of a run without."""
    plain = train(1)
    fused = train(1, kernels={"fused_head_loss": True})
    assert fused.losses == pytest.approx(plain.losses, abs=1e-5)

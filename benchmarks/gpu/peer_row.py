"""A row of `table.py` that is not the trainer: a peer's model, or a bare torch loop around ours. Prints JSON.

Random tokens, steps back to back, median of CUDA events between them behind the warm-up; the norm is clipped and AdamW
taken in all of them, with fp32 state but for litgpt. Without a GPU a tiny model runs a few steps, to see that it does.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rows import VOCABULARY, Row
from torch import Tensor

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
STEPS, WARM_UP = (24, 6) if CUDA else (3, 1)


def main(text: str, profiled: bool = False) -> None:
    """Measure one row; with ``profiled`` also print the kernels that take the most time to stderr."""
    row = Row.parse(text)
    began = time.time()
    tiny = {} if CUDA else {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    shape = {**row.shape(), **tiny}
    vocabulary = VOCABULARY if CUDA else 512
    build = {"loop": bare_loop, "litgpt": litgpt}.get(row.who, hugging_face)
    step = build(row, shape, vocabulary)
    batches = random_batches(row, vocabulary)
    times_ms, losses, first_s = [], [], 0.0
    for number in range(STEPS):
        start = mark()
        loss = step(next(batches))
        end = mark()
        if number == 0:
            wait()
            first_s = time.time() - began
        times_ms.append((start, end))
        losses.append(loss.detach())
    wait()
    late = [elapsed_ms(*pair) for pair in times_ms[WARM_UP:]]
    found = {
        "ms": statistics.median(late),
        "tokens_per_s": row.tokens / statistics.median(late) * 1000,
        "loss": float(losses[-1]),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if CUDA else 0.0,
        "start_s": first_s,
    }
    print(json.dumps(found))
    if profiled:
        with torch.profiler.profile() as profile:
            for _ in range(3):
                step(next(batches))
            wait()
        print(profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=45), file=sys.stderr)


def mark() -> Any:
    """Return a point in the device's time."""
    if not CUDA:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def wait() -> None:
    """Wait for the device."""
    if CUDA:
        torch.cuda.synchronize()


def elapsed_ms(start: Any, end: Any) -> float:
    """Return the time between two marks."""
    return float(start.elapsed_time(end)) if CUDA else (end - start) * 1000


def random_batches(row: Row, vocabulary: int) -> Iterator[list[Tensor]]:
    """Yield the micro-batches (micro, length + 1) of steps, four of them in turn."""
    gas = int(row.keys.get("gradient_accumulation_steps", 1))
    micro, length = (row.micro_batch, row.length) if CUDA else (2, 32)
    kept = [[torch.randint(0, vocabulary, (micro, length + 1), device=DEVICE) for _ in range(gas)] for _ in range(4)]
    while True:
        yield from kept


def hugging_face(row: Row, shape: dict[str, Any], vocabulary: int) -> Callable[[list[Tensor]], Tensor]:
    """Return a step of GPTNeoXForCausalLM as its users train it."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=shape["hidden_size"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_attention_heads"],
        intermediate_size=4 * shape["hidden_size"],
        max_position_embeddings=row.length,
        rotary_pct=1.0,
        use_parallel_residual=False,
        hidden_act="gelu",
        attn_implementation="sdpa",
        use_cache=False,
    )
    with DEVICE:
        model = GPTNeoXForCausalLM(config)
    if row.who == "hf-compiled":
        model.compile(dynamic=False)
    elif row.who == "hf-layers":
        for layer in model.gpt_neox.layers:
            layer.compile(dynamic=False)

    def loss_of(tokens: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss: Tensor = model(tokens[:, :-1], labels=tokens[:, :-1]).loss
        return loss

    return users_step(model, loss_of)


def litgpt(row: Row, shape: dict[str, Any], vocabulary: int) -> Callable[[list[Tensor]], Tensor]:
    """Return a step of litgpt's model as its ``pretrain`` takes it with precision bf16-true, without Fabric."""
    from litgpt import GPT, Config
    from litgpt.utils import chunked_cross_entropy

    config = Config(
        block_size=row.length,
        n_layer=shape["num_layers"],
        n_embd=shape["hidden_size"],
        n_head=shape["num_attention_heads"],
        intermediate_size=4 * shape["hidden_size"],
        vocab_size=vocabulary,
        padded_vocab_size=vocabulary,
        rotary_percentage=1.0,
        parallel_residual=False,
    )
    with DEVICE:
        model = GPT(config).to(torch.bfloat16)
    model.max_seq_length = row.length if CUDA else 32
    compiled = torch.compile(model)

    def loss_of(tokens: Tensor) -> Tensor:
        # Its own chunks of the logits' loss are off in pretrain.
        loss: Tensor = chunked_cross_entropy(compiled(tokens[:, :-1]), tokens[:, 1:], chunk_size=0)
        return loss

    return users_step(model, loss_of)


def users_step(model: torch.nn.Module, loss_of: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor]], Tensor]:
    """Return a step as torch's users write it; ``loss_of`` is the mean loss of a micro-batch (micro, length + 1)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=CUDA)

    def step(batches: list[Tensor]) -> Tensor:
        for tokens in batches:
            loss = loss_of(tokens) / len(batches)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def bare_loop(row: Row, shape: dict[str, Any], vocabulary: int) -> Callable[[list[Tensor]], Tensor]:
    """Return a step of our model with its kernels and AdamW, without DeepSpeed, loader, log and all else."""
    from types import SimpleNamespace

    from neoxlite.model.gpt import GPTModel
    from neoxlite.model.init import initialise
    from neoxlite.model.kernels import choose_kernels, compile_blocks, use_kernels
    from neoxlite.model.spec import ModelSpec
    from neoxlite.parallel.topology import Topology

    spec = ModelSpec(
        num_layers=shape["num_layers"],
        hidden_size=shape["hidden_size"],
        num_attention_heads=shape["num_attention_heads"],
        num_kv_heads=shape["num_attention_heads"],
        seq_length=row.length,
        max_position_embeddings=row.length,
        padded_vocab_size=vocabulary,
        mlp_hidden_size=4 * shape["hidden_size"],
        init_method="small_init",
        output_layer_init_method="wang_init",
    )
    asked: dict[str, Any] = {"fp8_recipe": row.keys.get("kernels.fp8_recipe")}
    asked["fp8"] = row.keys.get("kernels.fp8") == "true"
    cfg = SimpleNamespace(
        kernels=asked, train_micro_batch_size_per_gpu=row.micro_batch, precision="bfloat16", zero_stage=1
    )
    kernels = choose_kernels(cfg, spec, Topology(), DEVICE)
    with DEVICE:
        model = GPTModel(spec)
    initialise(model, spec, seed=1)
    model = model.to(DEVICE, torch.bfloat16)
    use_kernels(model, kernels)
    model.fused_head_loss = kernels.fused_head_loss
    if kernels.compile_blocks:
        compile_blocks(model, row.length, DEVICE, torch.bfloat16)
    return direct_step(model)


def direct_step(model: torch.nn.Module) -> Callable[[list[Tensor]], Tensor]:
    """Return a step of our AdamW over flat weights, with the gradients where autograd leaves them."""
    from neoxlite.optim.adamw import Partition, Rates, clip_coefficient, update

    parameters = list(model.parameters())
    weights = torch.cat([parameter.detach().view(-1) for parameter in parameters])
    starts, position = [], 0
    for parameter in parameters:
        starts.append(position)
        parameter.data = weights.narrow(0, position, parameter.numel()).view_as(parameter)
        position += parameter.numel()
    master = weights.float()
    part = Partition(weights, master, torch.zeros_like(master), torch.zeros_like(master))
    table = None
    if CUDA:
        from neoxlite.optim.triton_adamw import GradientTable

        table = GradientTable(parameters, starts)
    count = 0

    def step(batches: list[Tensor]) -> Tensor:
        nonlocal count
        count += 1
        for tokens in batches:
            loss: Tensor = model(tokens[:, :-1], tokens[:, 1:]) / len(batches)
            loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float32)).square().sum().sqrt()
        rates = Rates(1e-4, 0.9, 0.95, 1e-8, 0.1, count)
        if table is None:
            flat = torch.cat([gradient.view(-1) for gradient in gradients])
            update(part, flat, clip_coefficient(norm, 1.0), rates)
        else:
            table.update(part, clip_coefficient(norm, 1.0), rates)
        for parameter in parameters:
            parameter.grad = None
        return loss

    return step


if __name__ == "__main__":
    main(sys.argv[1], "--profile" in sys.argv[2:])

"""Fine-tune a causal language model of Hugging Face with DeepSpeed (ZeRO): one process a GPU, or a CPU with gloo.

    hpcjob submit jobs/hf-finetune/job.yml -p lab --nodes 2 --set params.model=models/gpt --set params.data=train.jsonl

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT come from the job. Nothing is downloaded: the model is a
folder, as `save_pretrained` or `huggingface-cli download` writes it. The global batch is the same on any number of
processes. A run that was stopped in time goes on where it was when it is submitted again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # compute nodes seldom reach the internet
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers

HAS_GPU = torch.cuda.is_available()
os.environ.setdefault("DS_ACCELERATOR", "cuda" if HAS_GPU else "cpu")

import deepspeed  # noqa: E402 - it reads DS_ACCELERATOR
import torch.distributed as dist  # noqa: E402

SAVED_FOR_WALLTIME, STOPPED = 85, 86  # what the job's exit code tells; see docs/job-file.md


def main() -> int:
    """Train, save, and return the exit code."""
    options = parsed()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    if HAS_GPU:
        torch.cuda.set_device(local_rank)
    else:
        deepspeed.ops.__compatible_ops__ = {}  # else an operator that nothing here uses is compiled for a minute
    deepspeed.init_distributed("nccl" if HAS_GPU else "gloo", verbose=False)
    print(f"rank {rank} of {world_size} on {os.uname().nodename}", flush=True)

    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    sequences = packed(options.data, tokenizer, options.seq_length)
    steps = options.steps or math.ceil(options.epochs * len(sequences) / options.batch)
    settings = deepspeed_settings(options, world_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, max(1, steps // 20), steps)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=settings)

    resume = options.output / "resume"
    done = 0
    if (resume / "latest").exists():
        engine.load_checkpoint(str(resume))
        done = engine.global_steps
        say(rank, f"goes on after step {done}")
    for step in range(done, steps):
        if (code := asked_to_stop()) is not None:
            engine.save_checkpoint(str(resume))
            say(rank, f"saved at step {step} to {resume}")
            return code
        mean = torch.zeros((), device=engine.device)
        for batch in micro_batches(sequences, step, options, rank, world_size):
            tokens = batch.to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
            mean += loss.detach() / engine.gradient_accumulation_steps()
        dist.all_reduce(mean)
        numbers = {
            "loss": round(mean.item() / world_size, 6),
            "learning_rate": schedule.get_last_lr()[0],
            "epoch": round((step + 1) * options.batch / len(sequences), 3),
        }
        say(rank, f"step {step + 1}/{steps}: {numbers}")  # as the Trainer prints them: `hpcjob tail --loss` reads them

    if rank == 0:  # each rank has all parameters up to ZeRO stage 2
        engine.module.save_pretrained(options.output)
        tokenizer.save_pretrained(options.output)
    dist.barrier()
    say(rank, f"saved to {options.output}")
    return 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of the model and its tokenizer")
    parser.add_argument("--data", type=Path, required=True, help='JSON lines {"text": ...}')
    parser.add_argument("--output", type=Path, required=True, help="folder for the result")
    parser.add_argument("--deepspeed", type=Path, required=True, help="DeepSpeed's configuration, ZeRO stage 0 to 2")
    parser.add_argument("--seq-length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=64, help="sequences of a step, over all processes")
    parser.add_argument("--micro-batch", type=int, default=4, help="sequences at once in a process")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--steps", type=int, help="steps in all, instead of --epochs")
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def deepspeed_settings(options: argparse.Namespace, world_size: int) -> dict[str, Any]:
    """Return the configuration with the batch put in; on CPUs in fp32."""
    if options.batch % (options.micro_batch * world_size):
        sys.exit(
            f"--batch {options.batch} is no multiple of --micro-batch {options.micro_batch} x {world_size} processes"
        )
    settings: dict[str, Any] = json.loads(options.deepspeed.read_text())
    settings["train_batch_size"] = options.batch
    settings["train_micro_batch_size_per_gpu"] = options.micro_batch
    if not HAS_GPU:
        settings["bf16"] = {"enabled": False}
    return settings


def packed(data: Path, tokenizer: Any, seq_length: int) -> torch.Tensor:
    """Return all texts, each ended by the end-of-text token, cut into rows: (sequences, seq_length) of int64."""
    tokens: list[int] = []
    with data.open(encoding="utf-8") as lines:
        for line in lines:
            tokens += [*tokenizer(json.loads(line)["text"])["input_ids"], tokenizer.eos_token_id]
    rows = len(tokens) // seq_length
    if rows == 0:
        sys.exit(f"{data}: {len(tokens)} tokens, fewer than --seq-length {seq_length}")
    return torch.tensor(tokens[: rows * seq_length]).view(rows, seq_length)


def micro_batches(
    sequences: torch.Tensor, step: int, options: argparse.Namespace, rank: int, world_size: int
) -> Iterator[torch.Tensor]:
    """Yield this rank's part of a step's sequences; which those are depends on seed and step alone."""
    order: list[int] = []
    first = step * options.batch
    for number in range(first, first + options.batch):
        epoch, place = divmod(number, len(sequences))
        order.append(int(shuffled(len(sequences), options.seed + epoch)[place]))
    mine = order[rank * options.batch // world_size : (rank + 1) * options.batch // world_size]
    for start in range(0, len(mine), options.micro_batch):
        yield sequences[mine[start : start + options.micro_batch]]


_ORDERS: dict[int, torch.Tensor] = {}


def shuffled(count: int, seed: int) -> torch.Tensor:
    """Return the order of an epoch."""
    if seed not in _ORDERS:
        _ORDERS[seed] = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return _ORDERS[seed]


def asked_to_stop() -> int | None:
    """Return the exit code if the job is to end now: its script makes the file `stop` before the walltime.

    The ranks agree on it: what rank 0 has seen counts.
    """
    seen = torch.zeros((), dtype=torch.int64, device="cuda" if HAS_GPU else "cpu")
    stop = Path(os.environ.get("HPCJOB_JOBDIR", "."), "stop")
    if int(os.environ["RANK"]) == 0 and "HPCJOB_JOBDIR" in os.environ and stop.exists():
        seen += SAVED_FOR_WALLTIME if stop.read_text().strip() == "walltime" else STOPPED
    dist.broadcast(seen, 0)
    return int(seen) or None


def say(rank: int, words: str) -> None:
    """Print on rank 0."""
    if rank == 0:
        print(words, flush=True)


if __name__ == "__main__":
    code = main()
    dist.destroy_process_group()
    sys.exit(code)

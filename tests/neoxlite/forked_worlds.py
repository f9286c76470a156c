"""Worlds of several ranks as forked processes, and small runs to put on them. Importing this file imports no torch."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

CHILD_TIMEOUT_S = 240

TINY: dict[str, Any] = {
    "num_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "pos_emb": "rotary",
    "rotary_pct": 0.25,
    "no_weight_tying": True,
    "tokenizer_type": "CharLevelTokenizer",
    "optimizer": {"type": "Adam", "params": {"lr": 0.002, "betas": [0.9, 0.95], "eps": 1.0e-8}},
    "min_lr": 0.0002,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "train_iters": 10,
    "lr_decay_style": "cosine",
    "warmup": 0.1,
    "gradient_clipping": 1.0,
    "eval_interval": 1000,
    "eval_iters": 0,
    "log_interval": 1,
    "split": "8,1,1",
    "zero_optimization": {"stage": 1},
}


class World:
    """Runs a function on every rank of a world of forked processes."""

    def start(self, size: int, function: Callable[..., Any], *args: Any) -> list[Child]:
        """Fork ``size`` ranks; each calls ``function(ranks, *args)``. Call `Child.result` on each of them."""
        from neoxlite.parallel.ranks import Ranks

        # Rank 0 serves the store on a socket that is bound here, so no rank has to find a free port. No thread of this
        # process does: a fork beside running threads can leave a lock taken for ever.
        with socket.create_server(("127.0.0.1", 0), backlog=size) as listener:
            port = listener.getsockname()[1]
            address = ("127.0.0.1", port) if size > 1 else (None, None)
            ranks = [Ranks(rank, size, rank, size, *address, "test") for rank in range(size)]
            return [Child(function, one, args, listener) for one in ranks]

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return the results of all ranks; an exception in one is raised here."""
        children = self.start(size, function, *args)
        try:
            return [child.result() for child in children]
        finally:
            for child in children:
                child.end()


class Child:
    """One forked rank."""

    def __init__(self, function: Callable[..., Any], ranks: Any, args: tuple[Any, ...], listener: socket.socket):
        context = multiprocessing.get_context("fork")
        self._receiver, sender = context.Pipe(duplex=False)
        with warnings.catch_warnings():
            # Forking a process that has threads: pytest's own, which wait.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process = context.Process(target=_child, args=(sender, function, ranks, args, listener))
            self.process.start()
        sender.close()

    def result(self) -> Any:
        """Wait for the function's result. Raises AssertionError with the child's traceback, or how it died."""
        if not self._receiver.poll(CHILD_TIMEOUT_S):
            self.end()
            raise AssertionError(f"the rank gave no result in {CHILD_TIMEOUT_S} s")
        try:
            kind, value = pickle.loads(self._receiver.recv_bytes())
        except EOFError:
            self.process.join(CHILD_TIMEOUT_S)
            raise AssertionError(f"the rank died with code {self.process.exitcode}") from None
        if kind == "error":
            raise AssertionError(f"a rank failed:\n{value}")
        return value

    def end(self) -> None:
        """Wait for the process, and kill it if it does not end."""
        self.process.join(CHILD_TIMEOUT_S)
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.join()
        self._receiver.close()


def _child(
    sender: Any, function: Callable[..., Any], ranks: Any, args: tuple[Any, ...], listener: socket.socket
) -> None:
    import torch

    # A fork breaks torch's thread pool, and the first call in the child makes a new one; two threads that do so at once
    # find none ("Invalid thread pool!"). Ranks of a run are no forks.
    torch.set_num_threads(1)
    os.environ.update(ranks.exported())
    store = None
    if ranks.world_size > 1:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        if ranks.rank == 0:
            from torch.distributed import TCPStore

            where = (ranks.master_addr, ranks.master_port)
            store = TCPStore(*where, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    listener.close()
    try:
        _send(sender, ("result", function(ranks, *args)))
        sender.close()
    except BaseException:
        _send(sender, ("error", traceback.format_exc()))
    sys.stdout.flush()
    del store
    # Without the interpreter's own way out: it would run the parent's exit handlers, pytest's among them.
    os._exit(0)


def _send(sender: Any, message: tuple[str, Any]) -> None:
    # Plain pickle: multiprocessing's own would pass tensors by shared memory that ends with the child.
    sender.send_bytes(pickle.dumps(message))


def tiny_config(path: Path, world_size: int = 1, /, **changes: Any) -> Any:
    """Write ``TINY`` with changes to ``path`` and resolve it for a world size."""
    from neoxlite.config import load_config

    path.write_text(yaml.safe_dump({**TINY, **changes}, allow_unicode=True), encoding="utf-8")
    return load_config(path, world_size=world_size)


def write_dataset(prefix: Path, documents: list[np.ndarray]) -> None:
    """Write ``documents`` (uint16) as ``prefix``.bin and .idx: 9 bytes magic, version, dtype code 8, counts, arrays."""
    prefix.with_suffix(".bin").write_bytes(b"".join(document.tobytes() for document in documents))
    sizes = np.array([len(document) for document in documents], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1].astype(np.int64) * 2)]).astype(np.int64)
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1)
    index = np.arange(len(sizes) + 1, dtype=np.int64)
    prefix.with_suffix(".idx").write_bytes(header + sizes.tobytes() + pointers.tobytes() + index.tobytes())


def read_metrics(path: Path) -> list[Mapping[str, Any]]:
    """Return the entries of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


Event = Callable[[Any, Any], None]
"""Called with (ranks, files) on every rank just before an optimizer step."""


def stop_file(reason: str) -> Event:
    """Return an event: the stop file appears with a text, as a job script writes it."""
    return lambda ranks, files: files.stop.write_text(reason) if ranks.rank == 0 else None


def signal_to(rank: int, number: int) -> Event:
    """Return an event: one rank receives a signal."""
    return lambda ranks, files: os.kill(os.getpid(), number) if ranks.rank == rank else None


@dataclass(frozen=True)
class Trained:
    """What a training left behind."""

    outcomes: list[Any]
    """One for each rank."""
    metrics: list[Mapping[str, Any]]
    """Entries of metrics.jsonl, one an iteration."""
    events: list[Mapping[str, Any]]
    """Entries of metrics.jsonl that are events: validations."""
    folder: Path
    """The job's folder with stop, outcome.json and metrics.jsonl."""

    @property
    def losses(self) -> list[float]:
        """Loss of each iteration, fp32 numbers."""
        return [entry["loss"] for entry in self.metrics]

    @property
    def grad_norms(self) -> list[float]:
        """Global gradient norm of each iteration."""
        return [entry["grad_norm"] for entry in self.metrics]


def train_rank(ranks: Any, cfg: Any, files: Any, at: Mapping[int, Event]) -> Any:
    """Train on one rank; ``at`` says what happens just before the run's n-th step, counted from 1."""
    from neoxlite.training import run
    from neoxlite.training.engine import Engine
    from neoxlite.training.pipeline_engine import PipelineEngine

    kind = Engine if cfg.pipe_parallel_size <= 1 else PipelineEngine
    real_step, taken = kind.train_step, []

    def step_with_events(self: Any, batches: Any, iteration: int) -> Any:
        taken.append(None)
        if len(taken) in at:
            at[len(taken)](ranks, files)
        return real_step(self, batches, iteration)

    kind.train_step = step_with_events  # type: ignore[method-assign] # in a forked child, for its life only
    return run(cfg, ranks=ranks, files=files)


def command_rank(ranks: Any, arguments: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    from neoxlite.cli import main

    for name in ranks.exported():
        del os.environ[name]
    os.environ.update(environ)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()

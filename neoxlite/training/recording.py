"""The recorder of a configuration: which places its numbers go to, and what its iterations cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neoxlite.training.boards import Board, TensorBoard
from neoxlite.training.environment import peak_tflops
from neoxlite.training.metrics import Costs, Recorder
from neoxlite.training.metrics_file import MetricsFile
from neoxlite.training.progress import ProgressLine
from neoxlite.training.wandb_log import start_wandb

if TYPE_CHECKING:
    import torch

    from neoxlite.config import NeoxConfig


def costs_of(cfg: NeoxConfig, padded_vocab_size: int, device: torch.device) -> Costs:
    """Return what an iteration costs, and the peak of the device: of the configuration, or of the job script.

    The job script's is that of the nodes' GPUs, which a run on the CPUs of such a node does not use.
    """
    of_nodes = peak_tflops()
    return Costs(
        samples=cfg.train_batch_size,
        tokens=cfg.train_batch_size * cfg.seq_length,
        flops=cfg.flops_per_iteration(padded_vocab_size),
        model_flops=cfg.architecture.flops_per_iteration(padded_vocab_size, cfg.train_batch_size, False),
        world_size=cfg.world_size,
        peak_tflops=cfg.peak_theoretical_tflops or (of_nodes if device.type == "cuda" else None),
    )


def build_recorder(
    cfg: NeoxConfig,
    costs: Costs,
    start: int,
    metrics_file: Path | None,
    progress: ProgressLine,
    say: Callable[[str], None],
) -> Recorder:
    """Return the recorder of rank 0.

    Args:
        start: iteration that the run goes on from.

    Raises:
        NeoxliteError: tensorboard_dir cannot be written, or tensorboard is not installed.
    """
    boards: list[Board] = []
    if cfg.tensorboard_dir:
        boards.append(TensorBoard(cfg.tensorboard_dir, start, say))
    wandb = start_wandb(cfg, say)
    if wandb is not None:
        boards.append(wandb)
    metrics = MetricsFile(metrics_file, say) if metrics_file is not None else None
    return Recorder(train_iters=cfg.train_iters, costs=costs, metrics=metrics, boards=boards, progress=progress)

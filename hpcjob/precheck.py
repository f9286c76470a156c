"""What a training run will say at its start, said at submission: its configuration is read with the job's ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.documents.document import leaves
from hpcjob.elements import of_element
from hpcjob.errors import InputError
from hpcjob.planning.topology import ACCELERATOR, trains_on_gpus
from neoxlite.common.counting import counted
from neoxlite.common.paths import exists, is_file

if TYPE_CHECKING:
    from hpcjob.documents.places import Places
    from hpcjob.job import Train
    from hpcjob.plan import Plan
    from neoxlite.config import NeoxConfig

_DATA_KEYS = ("data_path", "train_data_paths", "valid_data_paths", "test_data_paths")
_DRIVER = Path("/proc/driver/nvidia/gpus")
_FILE_KEYS = ("vocab_file", "merge_file")
_FROM_SET = re.compile(r"--set: ([\w.]+)")
_ANYWAY = "or submit anyway with --no-check"


def check_training(plan: Plan) -> list[str]:
    """Read the configuration of each training step of ``plan`` as the job will, from the current folder.

    Returns:
        What the user should know: warnings of the configuration, and data that is not there (of the first step only: an
        earlier step may make what a later one reads).

    Raises:
        InputError: the trainer would refuse it; the message is the trainer's own.
    """
    from neoxlite.common.errors import UserError
    from neoxlite.config import load_config

    notes: list[str] = []
    for number, (name, key, train, ranks) in enumerate(_trainings(plan)):
        try:
            cfg = load_config(train.configs, train.conf_dir, dict(leaves(train.set)), ranks)
        except UserError as error:
            hint = f"{error.hint}{' ' if error.hint[-1] in '?.' else '; '}{_ANYWAY}" if error.hint else None
            said = _of_the_job(error.message, f"{key}.set", plan.places)
            raise InputError(f"{name}: neoxlite would reject the configuration: {said}", hint=hint) from None
        notes += [f"{name}: {warning}" for warning in (*cfg.warnings, *_too_large(cfg, plan))]
        if number == 0 and (plan.job.train or (plan.job.steps and plan.job.steps[0].train)):
            notes += [f"{name}: {missing}" for missing in _missing(cfg)]
    return [*notes, *_gpus_here(plan)]


def _too_large(cfg: NeoxConfig, plan: Plan) -> Iterator[str]:
    """Yield a note where the run surely needs more memory than the profile says that a GPU has."""
    from neoxlite.config.micro_batch import least_gib

    has = plan.profile.node.gpu_memory_gib
    if not has or not plan.gpus_per_node or not trains_on_gpus(plan.job):
        return
    needed = least_gib(cfg, cfg.make_vocab_size_divisible_by * cfg.model_parallel_size)
    if needed > has:
        yield (
            f"a GPU needs {needed:.0f} GiB or more for this, and one of {plan.profile.name} has {has:g}: less "
            "train_micro_batch_size_per_gpu, more model_parallel_size, pipe_parallel_size or zero_optimization.stage"
        )


def _of_the_job(message: str, key: str, places: Places) -> str:
    """Name the place in the job of what the trainer, which is given it as an option, calls ``--set``."""
    if not (found := _FROM_SET.match(message)):
        return message
    return f"{places.get(f'{key}.{found[1]}', key)}: {message[found.start(1) :]}"


def _gpus_here(plan: Plan) -> Iterator[str]:
    """Yield a note where a job of this machine has more ranks than it shows GPUs, of which the profile says nothing."""
    if plan.profile.scheduler.type != "local" or plan.profile.node.gpus or not trains_on_gpus(plan.job):
        return
    gpus = len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
    if 0 < gpus < plan.procs_per_node:
        yield (
            f"{counted(plan.procs_per_node, 'rank')}, and this machine shows {counted(gpus, 'GPU')}: with a torch for "
            f"CUDA the run is refused; --set procs_per_node={gpus}, or --env {ACCELERATOR}=cpu"
        )


def _trainings(plan: Plan) -> Iterator[tuple[str, str, Train, int]]:
    """Yield name, key in the job file, work and number of ranks of each training step."""
    steps = [(f"steps[{number}].train", step.train) for number, step in enumerate(plan.job.steps or [])]
    works = [("train", plan.job.train)] if plan.job.train else steps
    for step, (key, train) in zip(plan.steps, works, strict=False):
        if train and plan.array is not None:  # the first element speaks for all
            first = of_element(msgspec.to_builtins(train), plan.array, plan.array.indices[0])
            train = msgspec.convert(first, type(train))
        if train:
            yield step.name, key, train, 1 if step.launcher == "none" else plan.world_size


def _missing(cfg: NeoxConfig) -> Iterator[str]:
    for key in _DATA_KEYS:
        value = getattr(cfg, key)
        for prefix in [value] if isinstance(value, str) else value or []:
            lacking = [suffix for suffix in (".bin", ".idx") if not is_file(Path(f"{prefix}{suffix}"))]
            if lacking:
                yield f"{key}: {prefix} has no {' and no '.join(lacking)} here"
    for key in _FILE_KEYS:
        value = getattr(cfg, key)
        if isinstance(value, str) and not exists(Path(value)):
            yield f"{key}: {value} does not exist here"

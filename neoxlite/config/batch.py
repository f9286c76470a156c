"""How the GPUs are shared out, and the batch equation.

world size = pipeline x data x tensor parallel size, and
train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data parallel size
(megatron/neox_arguments/arguments.py, ``calculate_batch_parameters`` and ``check_batch_parameters``).
"""

from __future__ import annotations

from dataclasses import dataclass

from neoxlite.errors import ConfigError

_MOST_GPUS = 1_000_000  # the hints look through the divisors


@dataclass(frozen=True)
class Layout:
    """The three parallel sizes; each is at least 1."""

    world_size: int
    pipe: int
    model: int

    @property
    def data(self) -> int:
        """Number of model replicas."""
        return self.world_size // (self.pipe * self.model)


def layout(world_size: int, pipe_parallel_size: int, model_parallel_size: int, heads: int = 0) -> Layout:
    """Return the layout of ``world_size`` GPUs; a pipe or model parallel size of 0 counts as 1.

    Args:
        heads: attention heads, which model_parallel_size has to divide, for the choices that a refusal names.

    Raises:
        ConfigError: fewer than one GPU or more than a million, or not a multiple of pipe x model.
    """
    if not 1 <= world_size <= _MOST_GPUS:
        raise ConfigError(
            f"the world size is {world_size}; it must be from 1 to {_MOST_GPUS:,}", hint="give the number of GPUs"
        )
    pipe, model = max(1, pipe_parallel_size), max(1, model_parallel_size)
    if world_size % (pipe * model):
        raise ConfigError(
            f"{world_size} GPUs cannot be shared out: pipe_parallel_size {pipe} x model_parallel_size {model} "
            f"= {pipe * model} GPUs for each copy of the model",
            hint=_layout_hint(world_size, pipe, model, heads),
        )
    return Layout(world_size, pipe, model)


def _layout_hint(world_size: int, pipe: int, model: int, heads: int) -> str:
    copy = pipe * model
    below = world_size // copy * copy
    counts = [count for count in (below, below + copy) if count]
    choices = f"use {' or '.join(str(count) for count in counts)} GPUs"
    sizes = [size for size in range(1, world_size + 1) if world_size % size == 0]
    pairs = [(p, m) for p in sizes for m in sizes if world_size % (p * m) == 0 and heads % m == 0]
    near = sorted(pairs, key=lambda pair: (abs(pair[0] * pair[1] - copy), abs(pair[0] - pipe) + abs(pair[1] - model)))
    named = [f"pipe_parallel_size {p} with model_parallel_size {m}" for p, m in near[:2]]
    return f"{choices}, or {' or '.join(named)}"


@dataclass(frozen=True)
class Batch:
    """A batch that satisfies the equation; all in sequences."""

    train: int
    micro: int
    accumulation: int
    data_parallel: int

    @property
    def equation(self) -> str:
        """``16 = 4 x 1 x 4`` with the names."""
        return (
            f"train_batch_size {self.train} = micro-batch {self.micro} x accumulation {self.accumulation} "
            f"x data parallel {self.data_parallel}"
        )


def resolve_batch(train: int | None, micro: int | None, accumulation: int | None, data_parallel: int) -> Batch:
    """Return the batch from what is given, each number at least 1; None is "not given".

    Two of the three give the third; one alone is completed with accumulation 1.

    Raises:
        ConfigError: neither total nor micro-batch is given, or the equation does not hold.
    """
    if train is None:
        if micro is None:
            raise ConfigError(
                "neither train_batch_size nor train_micro_batch_size_per_gpu is given",
                hint="give train_micro_batch_size_per_gpu: the sequences one GPU takes at a time",
            )
        steps = accumulation or 1
        return Batch(micro * steps * data_parallel, micro, steps, data_parallel)
    if micro is None:
        steps = accumulation or 1
        micro = max(1, train // data_parallel // steps)
        _check(train, micro, steps, data_parallel)
        return Batch(train, micro, steps, data_parallel)
    steps = accumulation if accumulation is not None else max(1, train // micro // data_parallel)
    _check(train, micro, steps, data_parallel)
    return Batch(train, micro, steps, data_parallel)


def _check(train: int, micro: int, accumulation: int, data_parallel: int) -> None:
    product = micro * accumulation * data_parallel
    if product == train:
        return
    raise ConfigError(
        f"train_batch_size {train} != micro-batch {micro} x accumulation {accumulation} x data parallel {data_parallel}"
        f" = {product}",
        hint=_batch_hint(train, micro, accumulation, data_parallel),
    )


def _batch_hint(train: int, micro: int, accumulation: int, data_parallel: int) -> str:
    share = micro * data_parallel
    if train % share == 0:
        return f"set gradient_accumulation_steps: {train // share}, or train_batch_size: {share * accumulation}"
    below = max(1, train // share)
    return (
        f"no accumulation fits: {train} is not a multiple of {micro} x {data_parallel} = {share}; nearest are "
        f"train_batch_size: {below * share} with gradient_accumulation_steps: {below}, "
        f"and {(below + 1) * share} with {below + 1}"
    )

"""The batch equation and the layout of GPUs, by examples and by properties."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoxlite.config import ConfigError
from neoxlite.config.batch import Batch, layout, resolve_batch
from tests.neoxlite.config.samples import Load

_SMALL = st.integers(1, 64)
_FIXED = settings(derandomize=True, deadline=None)


def _batch_or_error(train: int | None, micro: int | None, accumulation: int | None, data: int) -> Batch | ConfigError:
    try:
        return resolve_batch(train, micro, accumulation, data)
    except ConfigError as error:
        return error


@_FIXED
@given(micro=_SMALL, accumulation=_SMALL, data=_SMALL, given_keys=st.sets(st.sampled_from("tma"), min_size=2))
def test_a_consistent_batch_resolves_to_itself(micro: int, accumulation: int, data: int, given_keys: set[str]) -> None:
    """Any two or all three of a consistent triple give back the triple."""
    train = micro * accumulation * data
    batch = resolve_batch(
        train if "t" in given_keys else None,
        micro if "m" in given_keys else None,
        accumulation if "a" in given_keys else None,
        data,
    )
    assert (batch.train, batch.micro, batch.accumulation, batch.data_parallel) == (train, micro, accumulation, data)


@_FIXED
@given(
    train=st.none() | st.integers(1, 300),
    micro=st.none() | st.integers(1, 40),
    accumulation=st.none() | st.integers(1, 40),
    data=st.integers(1, 40),
)
def test_whatever_is_given_the_equation_holds_or_is_refused(
    train: int | None, micro: int | None, accumulation: int | None, data: int
) -> None:
    """What is given is kept, the equation holds, all is positive; or a message with something to do."""
    batch = _batch_or_error(train, micro, accumulation, data)
    if isinstance(batch, ConfigError):
        assert batch.hint
        return
    assert batch.train == batch.micro * batch.accumulation * batch.data_parallel
    assert min(batch.train, batch.micro, batch.accumulation) >= 1
    assert batch.data_parallel == data
    assert train in (None, batch.train)
    assert micro in (None, batch.micro)
    assert accumulation in (None, batch.accumulation)


@_FIXED
@given(train=st.integers(1, 2000), micro=st.integers(1, 64), accumulation=st.integers(1, 64), data=st.integers(1, 64))
def test_what_the_message_proposes_works(train: int, micro: int, accumulation: int, data: int) -> None:
    """The numbers of the hint, put in, are accepted."""
    error = _batch_or_error(train, micro, accumulation, data)
    if not isinstance(error, ConfigError):
        return
    assert f"train_batch_size {train} != micro-batch {micro} x accumulation {accumulation}" in error.message
    numbers = [int(number) for number in re.findall(r"(?:size|steps): (\d+)", error.hint or "")]
    if (error.hint or "").startswith("set "):
        steps, total = numbers  # two ways out
        resolve_batch(train, micro, steps, data)
        resolve_batch(total, micro, accumulation, data)
    else:
        total, steps = numbers
        resolve_batch(total, micro, steps, data)


def test_mismatch_names_place_numbers_and_a_way_out(load: Load) -> None:
    """The case of a user who raised the total and forgot the accumulation."""
    with pytest.raises(ConfigError) as caught:
        load(train_batch_size=64, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=1, world_size=8)
    assert caught.value.message.endswith(
        "small.yml:15: train_batch_size 64 != micro-batch 4 x accumulation 1 x data parallel 8 = 32"
    )
    assert caught.value.hint == "set gradient_accumulation_steps: 2, or train_batch_size: 32"


def test_accumulation_that_is_not_given_follows(load: Load) -> None:
    """Total and micro-batch leave one accumulation; GPT-NeoX takes its default of 1 there and refuses the batch."""
    cfg = load(train_batch_size=64, train_micro_batch_size_per_gpu=4, world_size=8, gradient_clipping=0.5)
    assert cfg.gradient_accumulation_steps == 2
    assert cfg.source("gradient_accumulation_steps") == "derived"
    assert [note.split(";")[0] for note in cfg.notes] == ["gradient_accumulation_steps 2 follows from train_batch_size"]
    with pytest.raises(ConfigError, match="60 != micro-batch 4 x accumulation 1 x data parallel 8 = 32"):
        load(train_batch_size=60, train_micro_batch_size_per_gpu=4, world_size=8)


@_FIXED
@given(world=st.integers(1, 256), pipe=st.integers(0, 16), model=st.integers(0, 16))
def test_layout_uses_all_gpus_or_is_refused(world: int, pipe: int, model: int) -> None:
    """pipe x data x model is the world size; a refusal names the numbers and counts that work."""
    copy = max(1, pipe) * max(1, model)
    if world % copy == 0:
        sizes = layout(world, pipe, model)
        assert sizes.pipe * sizes.data * sizes.model == world
        return
    with pytest.raises(ConfigError, match=f"{world} GPUs cannot be shared out") as caught:
        layout(world, pipe, model)
    counts = [int(word) for word in (caught.value.hint or "").split(" GPUs")[0].split() if word.isdigit()]
    assert counts
    assert all(count % copy == 0 and abs(count - world) < copy for count in counts)


@pytest.mark.parametrize("world", [0, -8, 10**7, 10**18])
def test_impossible_world_sizes(world: int) -> None:
    """None at all, and more than any machine has: refused before anything is looked for among so many."""
    with pytest.raises(ConfigError, match=r"the world size is -?\d+; it must be from 1 to 1,000,000"):
        layout(world, 7, 1)


@pytest.mark.parametrize("key", ["pipe_parallel_size", "model_parallel_size"])
@pytest.mark.parametrize("size", [-1, 10**12])
def test_impossible_parallel_sizes(key: str, size: int, load: Load) -> None:
    """Below 0, where 0 counts as 1, and so large that the stages could not be listed."""
    with pytest.raises(ConfigError, match=rf"small\.yml:15: {key} is {size}; it must be from 0 to 10,000"):
        load(**{key: size})


def test_world_size_of_run_file_or_one_copy(load: Load) -> None:
    """The run's size wins over the file's with a warning; without both it is one copy of the model."""
    assert load(world_size=6, global_num_gpus=6).data_parallel_size == 6
    cfg = load(world_size=4, global_num_gpus=6)
    assert (cfg.world_size, cfg.global_num_gpus) == (4, 4)
    assert any("global_num_gpus is 6; the run has 4" in warning for warning in cfg.warnings)
    assert load(global_num_gpus=6).world_size == 6
    assert load(pipe_parallel_size=2, model_parallel_size=2).world_size == 4


def test_layout_error_names_the_key(load: Load) -> None:
    """Six GPUs for four-GPU copies: the numbers, the counts that work, and the nearest sizes."""
    with pytest.raises(ConfigError) as caught:
        load(world_size=6, pipe_parallel_size=2, model_parallel_size=2)
    assert "6 GPUs cannot be shared out: pipe_parallel_size 2 x model_parallel_size 2 = 4 GPUs" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use 4 or 8 GPUs")
    assert "pipe_parallel_size 3 with model_parallel_size 1" in caught.value.hint


def test_layout_choices_divide_the_heads(load: Load) -> None:
    """Seven GPUs, eight heads: slices of a seventh are no choice."""
    with pytest.raises(ConfigError, match="7 GPUs cannot be shared out") as caught:
        load(world_size=7, num_attention_heads=8, pipe_parallel_size=4, model_parallel_size=2)
    assert caught.value.hint is not None
    assert "pipe_parallel_size 7 with model_parallel_size 1" in caught.value.hint
    assert "model_parallel_size 7" not in caught.value.hint

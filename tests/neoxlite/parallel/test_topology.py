"""The process grid's arithmetic."""

from __future__ import annotations

import pytest

from neoxlite.parallel.topology import Grid, Topology


def test_rank_order_is_pipeline_outermost_tensor_innermost() -> None:
    """GPT-NeoX's order: neighbours in rank are tensor peers, then replicas, then stages."""
    grid = Grid(pipeline=2, data=3, tensor=2)
    assert [grid.coordinates(rank) for rank in (0, 1, 2, 5, 6, 11)] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (0, 2, 1),
        (1, 0, 0),
        (1, 2, 1),
    ]
    assert all(grid.rank(*grid.coordinates(rank)) == rank for rank in range(grid.world_size))


def test_lines_along_each_axis() -> None:
    """Groups hold the ranks that differ in one coordinate only."""
    grid = Grid(pipeline=2, data=2, tensor=2)
    assert grid.lines("tensor") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grid.lines("data") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert grid.lines("pipeline") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_outside_the_grid_there_is_no_rank() -> None:
    """A rank beyond the world is an error, not a wrapped coordinate."""
    with pytest.raises(IndexError):
        Grid(data=2).coordinates(2)


def test_a_process_alone_has_no_groups() -> None:
    """The default topology is one process, and answers DeepSpeed's questions."""
    topology = Topology()
    assert topology.group("data") is None
    assert (topology.get_data_parallel_world_size(), topology.get_model_parallel_world_size()) == (1, 1)

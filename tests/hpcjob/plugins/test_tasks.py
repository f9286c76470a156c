"""Several tasks of a submitit job, started by the machine's own mpirun on the one node of an emulated PBS or PJM."""

from __future__ import annotations

import shutil

import pytest

from tests.cluster.need import need
from tests.hpcjob.plugins import functions
from tests.hpcjob.plugins.conftest import SYSTEMS, MakePlace


@pytest.mark.ci
@pytest.mark.parametrize("system", SYSTEMS)
def test_each_task_has_its_number_and_its_result(place: MakePlace, system: str) -> None:
    """As many as were asked for, each of which knows which it is."""
    need([] if shutil.which("mpirun") else ["mpirun"], "launcher")
    here = place(system)
    here.executor.update_parameters(tasks_per_node=2)
    job = here.executor.submit(functions.environment)
    told = job.results()
    assert [(task["global_rank"], task["local_rank"], task["num_tasks"]) for task in told] == [(0, 0, 2), (1, 1, 2)]
    assert [(task["node"], task["num_nodes"], task["hosts"]) for task in told] == [(0, 1, 1)] * 2
    assert {task["job_id"] for task in told} == {job.job_id}

"""``queue: auto``: the queue that a job goes to, from the limits that the sites' own pages give."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.loading.overrides import Override
from hpcjob.loading.profiles import read_profile
from hpcjob.planning.queues import choose
from hpcjob.profile import ClusterProfile
from hpcjob.render import render
from tests.hpcjob.test_plan import plan


@pytest.mark.parametrize(
    ("profile", "job", "queue"),
    [
        # Aquarius: debug-a one node 30 min, short-a two nodes 2 h, regular-a up to 8 (clusters.md, section 4).
        ("wisteria", {"nodes": 1, "walltime": "30m"}, "debug-a"),
        ("wisteria", {"nodes": 1, "walltime": "31m"}, "short-a"),
        ("wisteria", {"nodes": 2, "walltime": "30m"}, "short-a"),
        ("wisteria", {"nodes": 2, "walltime": "2:00:01"}, "regular-a"),
        ("wisteria", {"nodes": 8, "walltime": "24:00:00"}, "regular-a"),
        # Miyabi-G: debug-g 16 nodes 30 min, short-g 8 nodes 8 h, regular-g (section 5.1).
        ("miyabi", {"nodes": 16, "walltime": "0:30:00"}, "debug-g"),
        ("miyabi", {"nodes": 8, "walltime": "8:00:00"}, "short-g"),
        ("miyabi", {"nodes": 9, "walltime": "8:00:00"}, "regular-g"),
        # ABCI 3.0: one GPU and no GPU are parts of a node, several nodes only as whole nodes (section 1).
        ("abci3", {"gpus_per_node": 1}, "rt_HG"),
        ("abci3", {}, "rt_HF"),
        ("abci3", {"nodes": 2, "gpus_per_node": 1}, "rt_HF"),
        ("abci3", {"kind": "cpu"}, "rt_HC"),
        ("abci3", {"gpus_per_node": 1, "memory": "161G"}, "rt_HF"),
        ("abci3", {"gpus_per_node": 1, "cpus_per_gpu": 9}, "rt_HF"),
        # TSUBAME 4: the smallest resource type with enough (section 3).
        ("tsubame", {"gpus_per_node": 1}, "gpu_1"),
        ("tsubame", {"gpus_per_node": 1, "cpus_per_gpu": 16}, "node_q"),
        ("tsubame", {"gpus_per_node": 2}, "node_h"),
        ("tsubame", {"kind": "cpu", "cpus_per_gpu": 30}, "cpu_40"),
    ],
)
def test_choice(profile: str, job: dict[str, Any], queue: str) -> None:
    """Nodes, GPUs, kind, walltime, cores and memory decide; the choice is a note of the plan, and of the script."""
    made = plan({"queue": "auto", **job}, profile)
    assert made.queue == queue
    (note,) = [note for note in made.notes if note.startswith("queue: auto: ")]
    assert note.startswith(f"queue: auto: {queue} of ")
    script = render(made)
    assert f"# note: {note}\n" in script
    assert "auto\n" not in script.split("set -euo")[0]


@pytest.mark.parametrize(
    ("profile", "job", "message"),
    [
        (
            "wisteria",
            {"nodes": 5, "walltime": "48:00:00"},
            "queue: auto: no queue of wisteria accepts 5 nodes x 8 GPUs, 48:00:00\n"
            "the closest is regular-a, which accepts 4 nodes for 48:00:00, or 5 nodes for at most 24:00:00",
        ),
        (
            "abci3",
            {"gpus_per_node": 9},
            "queue: auto: no queue of abci3 accepts 1 node x 9 GPUs, 01:00:00\n"
            "the closest is rt_HF, which accepts gpus_per_node: 8",
        ),
        (
            "abci3",
            {"nodes": 200, "walltime": "1:00:00"},
            "queue: auto: no queue of abci3 accepts 200 nodes x 8 GPUs, 01:00:00\n"
            "the closest is rt_HF, which accepts 128 nodes for 01:00:00",
        ),
        (
            "lab",
            {},
            "queue: auto: lab lists no queues to choose from\nname the queue, or list them: hpcjob profile check",
        ),
    ],
)
def test_none_fits(profile: str, job: dict[str, Any], message: str) -> None:
    """Refused with the nearest queue, and what it would take."""
    with pytest.raises(InputError) as error:
        plan({"queue": "auto", **job}, profile)
    assert str(error.value).startswith(message)


def test_this_machine_has_none() -> None:
    """A job file with ``queue: auto`` runs here too."""
    assert plan({"queue": "auto"}, "local").queue is None


def test_a_queue_that_is_not_for_the_choice() -> None:
    """``auto: false`` keeps a queue out of it; asked for by name it is used."""
    queues = {"a": {"sizes": [{"nodes": 1, "walltime": "1:00:00"}], "auto": False}, "b": {}}
    cluster = msgspec.convert(
        {"name": "c", "title": "c", "scheduler": {"type": "slurm"}, "queues": queues}, ClusterProfile
    )
    assert plan({"queue": "auto"}, cluster).queue == "b"
    assert plan({"queue": "a"}, cluster).queue == "a"


def test_node_hours() -> None:
    """ABCI 2.0's whole A nodes: 2,304 node-hours a job, 36 hours of all 64 nodes (clusters.md, section 2)."""
    assert plan({"nodes": 64, "walltime": "36:00:00"}, "abci2").walltime_s == 36 * 3600
    with pytest.raises(InputError) as error:
        plan({"nodes": 64, "walltime": "36:00:01"}, "abci2")
    assert str(error.value).startswith(
        "walltime: 36:00:01 is longer than abci2 (rt_AF) allows for 64 nodes (36:00:00, of 2304 node-hours)\n"
    )
    with pytest.raises(InputError) as error:
        plan({"nodes": 64, "walltime": "37:00:00", "queue": "auto", "gpus_per_node": 8}, "abci2")
    assert str(error.value).endswith("which accepts 64 nodes for at most 36:00:00, or 62 nodes for 37:00:00")


def test_node_hours_that_allow_nothing() -> None:
    """A queue whose only limit is less than a second of the job: refused by name, as any other."""
    profile, _ = read_profile("lab", [Override("queues", {"big": {"node_hours": 0.0001}}, "test")])
    with pytest.raises(InputError) as caught:
        choose(JobFile(nodes=2), profile)
    assert "no queue of lab accepts 2 nodes" in caught.value.message
    assert caught.value.hint == "the closest is big, which accepts 1 node for at most 00:00:00"

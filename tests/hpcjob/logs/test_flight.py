"""PyTorch's flight recorder: the rank that did not come, the call that does not fit, files nobody vouches for."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcjob.cli import main
from hpcjob.logs.explain.flight import dump
from hpcjob.logs.explain.flight.unpickle import loads


def entry(
    number: int,
    name: str = "all_reduce",
    *,
    state: str = "completed",
    group: tuple[str, str] = ("0", "default_pg"),
    sizes: list[list[int]] | None = None,
    p2p: bool = False,
) -> dict[str, Any]:
    """Make an entry with the keys of PyTorch's FlightRecorder.hpp (version 2.4 and later)."""
    return {
        "record_id": number,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": 0 if p2p else number,
        "p2p_seq_id": number if p2p else 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1,
        "input_sizes": sizes if sizes is not None else [[4096, 1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4096, 1024]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": p2p,
        "frames": [
            {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 2501},
            {"name": "step", "filename": "/w/train.py", "line": 70 + number},
        ],
    }


def content(entries: list[dict[str, Any]], groups: dict[str, tuple[str, list[int]]]) -> dict[str, Any]:
    return {
        "version": "2.4",
        "nccl_version": "2.21.5",
        "pg_config": {
            name: {"name": name, "desc": title, "ranks": str(ranks)} for name, (title, ranks) in groups.items()
        },
        "pg_status": {},
        "entries": entries,
    }


WORLD = {"0": ("default_pg", [0, 1, 2, 3])}


def write(
    folder: Path, entries: dict[int, list[dict[str, Any]]], groups: dict[str, Any] = WORLD, *, form: str = ""
) -> None:
    folder.mkdir(exist_ok=True)
    for rank, calls in entries.items():
        data = content(calls, groups)
        if form == ".json":
            (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(data))
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))


def explain(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code = main(["explain", *map(str, words), "--json"])
    verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert verdict["code"] == code
    return verdict


def calls(count: int, **last: Any) -> list[dict[str, Any]]:
    """Make ``count`` completed calls; with ``last`` one more that hangs."""
    done = [entry(number) for number in range(1, count + 1)]
    return [*done, entry(count + 1, **{"state": "started", **last})] if last else done


@pytest.mark.parametrize("form", ["", ".json"])
def test_the_rank_that_did_not_come(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    """Three wait in collective 8, rank 2 called only seven: it is named, with the call and where the others made it."""
    entries = {rank: calls(7, state="started") for rank in (0, 1, 3)} | {2: calls(7)}
    write(tmp_path / "跡", entries, form=form)
    verdict = explain(capsys, tmp_path / "跡")
    assert (verdict["code"], verdict["rank"], verdict["ranks"]) == (77, 2, [2])
    assert "rank 2 did not come to collective 8 of default_pg" in verdict["cause"]
    assert "all_reduce of 4096 x 1024 BFloat16 at train.py:78 in step" in verdict["cause"]
    assert "ranks 0-1,3 waited" in verdict["cause"]
    assert verdict["evidence"][0]["rank"] == 2
    assert "train.py:77" in verdict["evidence"][0]["text"]


def test_a_rank_without_a_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A process that died leaves none; its group's list of ranks tells that it was there."""
    write(tmp_path, {rank: calls(7, state="started") for rank in (0, 1, 2)})
    verdict = explain(capsys, tmp_path)
    assert (verdict["code"], verdict["rank"]) == (77, 3)
    assert "rank 3 did not come to collective 8 of default_pg" in verdict["cause"]
    assert "left no dump" in verdict["cause"]


def test_another_call(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One rank calls another collective, or with another size: the odd one is to blame, not who waits."""
    entries = {rank: calls(4, state="started") for rank in (0, 2, 3)}
    write(tmp_path / "name", entries | {1: calls(4, name="_all_gather_base")})
    verdict = explain(capsys, tmp_path / "name")
    assert (verdict["code"], verdict["rank"]) == (76, 1)
    assert "rank 1 called _all_gather_base" in verdict["cause"]
    write(tmp_path / "size", entries | {1: calls(4, sizes=[[4096, 1000]])})
    verdict = explain(capsys, tmp_path / "size")
    assert (verdict["code"], verdict["rank"]) == (76, 1)
    assert "4096 x 1000" in verdict["cause"]


def test_sizes_that_may_differ(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All-to-all and broadcast have other inputs on each rank."""
    entries = {
        rank: calls(4, name=name, sizes=[[rank, 8]], state="completed")
        for rank, name in enumerate(["all_to_all_single"] * 4)
    }
    write(tmp_path, entries)
    assert explain(capsys, tmp_path)["code"] == 0


def test_blame_goes_through_groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ranks 0 and 1 wait for 2 and 3, which wait in their tensor-parallel group for nobody but rank 3."""
    groups = WORLD | {"1": ("tp", [0, 1]), "2": ("tp", [2, 3])}
    entries = {
        0: calls(5, state="started"),
        1: calls(5, state="started"),
        2: [*calls(5), entry(1, group=("2", "tp"), state="started")],
        3: calls(5),
    }
    write(tmp_path, entries, groups)
    verdict = explain(capsys, tmp_path)
    assert (verdict["code"], verdict["rank"]) == (77, 3)
    assert "of tp" in verdict["cause"]


def test_groups_in_different_orders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Half of the ranks wait in one group, half in the other: nobody is missing, the order is wrong."""
    groups = {"0": ("dp", [0, 1]), "1": ("tp", [0, 1])}
    entries = {
        0: [entry(1, group=("0", "dp"), state="started")],
        1: [entry(1, group=("1", "tp"), state="started")],
    }
    write(tmp_path, entries, groups)
    verdict = explain(capsys, tmp_path)
    assert verdict["code"] == 76
    assert "different orders" in verdict["cause"]


def test_a_gpu_that_never_began(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All called the same, on one GPU it did not start."""
    entries = {rank: calls(3, state="scheduled" if rank == 1 else "started") for rank in range(4)}
    write(tmp_path, entries)
    verdict = explain(capsys, tmp_path)
    assert (verdict["code"], verdict["rank"]) == (77, 1)
    assert "never began on the GPU" in verdict["cause"]


def test_an_error_in_the_log_goes_before(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The rank is missing because it ran out of memory: the log says so, the dumps only show who waited."""
    write(tmp_path, {rank: calls(7, state="started") for rank in (0, 1, 2)})
    (tmp_path / "12_3_log.out").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert explain(capsys, tmp_path)["code"] == 68


def test_files_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Dumps may be named themselves, as torchtitan's rank_0 too; a profiler's JSON beside them is none of them."""
    entries = {rank: calls(7, state="started") for rank in (0, 1, 3)} | {2: calls(7)}
    write(tmp_path, entries)
    files = [path.rename(tmp_path / f"rank_{path.name.rpartition('_')[2]}") for path in list(tmp_path.iterdir())]
    (tmp_path / "trace_0.json").write_text('{"traceEvents": []}')
    assert explain(capsys, *files)["rank"] == 2
    verdict = explain(capsys, tmp_path)
    assert verdict["rank"] == 2
    assert "warnings" not in verdict


class Evil:
    """Runs a command while it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch stolen",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil(), protocol=2),
        pickle.dumps({"entries": [Evil()]}, protocol=4),
        b"\x80\x02cos\nsystem\n(U\x0ctouch stolentR.",
        b'\x80\x02cbuiltins\neval\n(U\x0bexit("evil")tR.',
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.",
        b"\x80\x02Pwhatever\n.",
        pickle.dumps({"entries": []}, protocol=2)[:-4],
        b"\x80\x02",
        b"\x80\x02" + b"(" * 100_000,
        b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    ],
)
def test_hostile_pickles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Nothing in a dump is run; the file is left out and named, and the others are still compared."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"."):
        loads(data)
    write(tmp_path, {rank: calls(7, state="started") for rank in (0, 1)} | {2: calls(7)})
    (tmp_path / "nccl_trace_rank_3").write_bytes(data)
    verdict = explain(capsys, tmp_path)
    assert not (tmp_path / "stolen").exists()
    assert verdict["code"] == 77
    assert any("nccl_trace_rank_3: not read as a dump" in text for text in verdict["warnings"])


def test_nested_values_do_not_grow() -> None:
    """A list that holds itself a thousand times over is not written out."""
    nested: list[Any] = ["x"]
    for _ in range(40):
        nested = [nested, nested]
    hostile = content([entry(1) | {"process_group": (nested, nested), "state": nested, "frames": nested}], WORLD)
    hostile["pg_config"] = {"0": {"name": nested, "desc": nested, "ranks": nested}}
    start = time.process_time()
    read = dump.decode(pickle.dumps(hostile, protocol=2), 0)
    assert len(read.calls) == 1
    assert time.process_time() - start < 5  # not a timing: it would take for ever


@pytest.mark.parametrize("value", [[], {}, None, 7, "text", {"entries": "x"}, {"entries": {}}])
def test_other_data_is_no_dump(value: Any) -> None:
    """Well-formed, but not a recorder's."""
    with pytest.raises(dump.NoDumpError):
        dump.decode(pickle.dumps(value, protocol=2), 0)
    with pytest.raises(dump.NoDumpError):
        dump.decode(json.dumps(value).encode(), 0)


def test_entries_of_wrong_types_are_left_out() -> None:
    """A damaged entry tells nothing; the others are read."""
    bad: list[Any] = [None, 3, {}, {"collective_seq_id": "x", "profiling_name": 3}, entry(2) | {"frames": 7}, entry(1)]
    read = dump.decode(json.dumps(content(bad, WORLD)).encode(), 5)
    assert [call.sequence for call in read.calls] == [2, 1]
    assert read.calls[0].at is None


PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
rank, folder = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()

def meet(name):
    store.add(name, 1)
    while int(store.add(name, 0)) < 4:
        time.sleep(0.05)

def write(name):
    meet(name)
    os.makedirs(f"{folder}/{name}/json", exist_ok=True)
    open(f"{folder}/{name}/nccl_trace_rank_{rank}", "wb").write(_dump_fr_trace())
    open(f"{folder}/{name}/json/nccl_trace_rank_{rank}.json", "wb").write(_dump_fr_trace_json())
    meet(name + " written")  # or a fast rank would end what a slow one is yet to record as waiting

for _ in range(3):
    dist.all_reduce(torch.ones(4))
group = dist.new_group([0, 1], group_desc="tensor_parallel")
if rank < 2:
    dist.broadcast(torch.ones(4), 0, group=group)
late = dist.all_reduce(torch.ones(8), async_op=True) if rank != 2 else None
write("missing")
(late or dist.all_reduce(torch.ones(8), async_op=True)).wait()
if rank == 1:
    dist.all_gather([torch.ones(8) for _ in range(4)], torch.ones(8), async_op=True)
else:
    dist.all_reduce(torch.ones(8), async_op=True)
write("mismatch")
store.add("end", 1)
while rank == 0 and int(store.add("end", 0)) < 4:  # it holds the store
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.ci
def test_dumps_of_torch_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Four processes of gloo, whose recorder writes what that of NCCL writes: pickles and JSON, of two faults."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    settings = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    recorder = {"TORCH_FR_BUFFER_SIZE": "200", "TORCH_NCCL_TRACE_BUFFER_SIZE": "200"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
            env={**os.environ, **settings, **recorder, "RANK": str(number)},
            stderr=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    try:
        assert [process.wait(300) for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
    for fault, code, rank in (("missing", 77, 2), ("mismatch", 76, 1)):
        for folder in (tmp_path / fault, tmp_path / fault / "json"):
            verdict = explain(capsys, folder)
            assert (verdict["code"], verdict["rank"]) == (code, rank), verdict
        # PyTorch writes no frames into its JSON.
        assert "program.py" in explain(capsys, tmp_path / fault)["evidence"][0]["text"]

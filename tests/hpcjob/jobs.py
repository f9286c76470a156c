"""Plans, scripts, fake commands and a place of their own for the tests of submitting and tracking."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpcjob.job import JobFile
from hpcjob.plan import Plan
from hpcjob.planning.make import make_plan
from hpcjob.profile import ClusterProfile
from hpcjob.schedulers.local import read_local_job
from hpcjob.schedulers.supervisor import processes
from hpcjob.tracking.records import Record
from hpcjob.tracking.submission import prepare, submit


def plan_for(
    scheduler: str = "local",
    *,
    name: str = "job",
    walltime: str = "10m",
    group: str | None = None,
    not_shared: Sequence[Path] = (),
    **settings: Any,
) -> Plan:
    """Return the plan of a one-process job.

    Args:
        group: the account it is charged to.
        not_shared: folders that the cluster does not share.
        settings: keys of the profile's ``scheduler``.
    """
    profile = msgspec.convert(
        {
            "name": scheduler,
            "title": "a test's",
            "scheduler": {"type": scheduler, **settings},
            "paths": {"not_shared": [str(path) for path in not_shared]},
        },
        ClusterProfile,
    )
    job = JobFile(kind="cpu", command=["true"], walltime=walltime)
    return make_plan(job, profile, name=name, interpreter="/usr/bin/python3", account=group)


def script_of(body: str, *, traps: bool = True) -> Callable[[str], str]:
    """Return what renders a script by hand that runs ``body`` and keeps the contract of a job's files.

    It logs to ID_job.out, leaves an exit record on every end but SIGKILL, and passes TERM on.
    """

    def render(jobdir: str) -> str:
        lines = [
            "#!/bin/bash",
            f"cd {shlex.quote(jobdir)}",
            "id=${SLURM_JOB_ID:-$$}",
            'exec >>"${id}_job.out" 2>&1',
            'record() { printf \'{"code": %d, "signal": %s, "time": "2026-11-29T12:00:00+09:00", "host": "h",'
            ' "step": null}\' "$1" "$2" >x.tmp && mv x.tmp "${id}_exit.json"; }',
            "signal=null",
            "child=",
            # In this order: with the second alone a TERM would be recorded as code 0.
            "trap 'signal=\\\"TERM\\\"; kill $child; exit 143' TERM" if traps else "",
            "trap 'record $? $signal' EXIT" if traps else "",
            f"( {body}\n) & child=$!",
            "wait $child",
        ]
        return "\n".join(lines) + "\n"

    return render


def submit_local(body: str, *, name: str = "job", traps: bool = True, walltime: str = "10m") -> Record:
    """Submit ``body`` as a job of this machine, from the current folder."""
    return submit(prepare(plan_for(name=name, walltime=walltime), script_of(body, traps=traps)))


def fake_command(folder: Path, name: str, body: str) -> None:
    """Put a command called ``name`` into ``folder``; it notes each call's arguments in ``folder/name.calls``."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >>{shlex.quote(str(folder / f"{name}.calls"))}\n{body}\n')
    path.chmod(0o755)


def calls(folder: Path, name: str) -> list[str]:
    """Return the arguments of each call of a fake command."""
    path = folder / f"{name}.calls"
    return path.read_text().splitlines() if path.exists() else []


def with_path(folder: Path) -> str:
    """Return PATH with ``folder`` first."""
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with an index of its own; local jobs started below it are ended after the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    for path in tmp_path.rglob("*_local.json"):
        job = read_local_job(path.parent, path.name.removesuffix("_local.json"))
        if job is not None:
            processes.end_processes(job.mark, set(), kill_wait_s=0)

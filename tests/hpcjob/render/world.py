"""A folder in which a rendered script runs as on its cluster, with stubs on PATH."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcjob.plan import Plan
from hpcjob.profile import ClusterProfile, SchedulerName
from hpcjob.render import render
from tests.hpcjob.render.plans import plan as make
from tests.hpcjob.render.plans import profile

STUBS = ("mpirun", "srun", "pdsh", "scontrol", "getent", "nvidia-smi", "python")
GPUS = 2

MODULES = """
module() {
  case $1 in
    purge) unset LOADEDMODULES ;;
    use) export MODULEPATH=$2${MODULEPATH:+:$MODULEPATH} ;;
    load)
      case $2 in
        missing/*) echo "Unable to locate a modulefile for '$2'" >&2 && return 1 ;;
        silent/*) echo "silent: not found" >&2 && return 0 ;;
      esac
      export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}$2 MODULE_MADE_THIS="it's $2"
      echo "loading $2" >&2 ;;
  esac
}
export MODULEPATH=/modulefiles
: "$UNSET_IN_A_SITE_FILE"
"""


@dataclass
class Arrived:
    """What one rank saw: its arguments (the first is the script's name), environment and current folder."""

    argv: list[str]
    env: dict[str, str]
    cwd: str

    @classmethod
    def read(cls, path: Path) -> Arrived:
        """Read what the job of the stubs wrote."""
        cwd, *argv = path.read_bytes().decode().split("\0")[:-1]
        lines = path.with_suffix(".env").read_bytes().decode().split("\0")[:-1]
        return cls(argv, dict(line.split("=", 1) for line in lines), cwd)


@dataclass
class Run:
    """How a run of a script ended.

    Attributes:
        code: exit code. said: what it printed on the scheduler's output. jobdir: its job folder.
    """

    code: int
    said: str
    jobdir: Path

    @property
    def log(self) -> str:
        """The job's log."""
        (path,) = self.jobdir.glob("*_job.out")
        return path.read_text(encoding="utf-8", errors="replace")

    @property
    def record(self) -> dict[str, Any]:
        """The exit record."""
        (path,) = self.jobdir.glob("*_exit.json")
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return loaded

    def arrived(self, step: str = "") -> list[Arrived]:
        """What each rank of a step saw, in the order of ranks."""
        files = sorted(self.jobdir.glob(f"arrived{step}.*.argv"), key=lambda path: path.suffixes[-2].rjust(9))
        return [Arrived.read(path) for path in files]


class World:
    """One cluster made of stubs.

    Args:
        folder: everything is below it. submit_dir: folder to submit from.
    """

    def __init__(self, folder: Path, submit_dir: str = "submit") -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        for name in STUBS:
            stub = self.bin / name
            if not stub.exists():
                stub.write_bytes(Path(__file__).with_name("stubs.sh").read_bytes())
                stub.chmod(0o755)
        self.submit_dir = folder / submit_dir
        self.submit_dir.mkdir(parents=True, exist_ok=True)
        self.modules_init = folder / "modules.sh"
        self.modules_init.write_text(MODULES)
        self.canary = folder / "canary"
        self._ids = itertools.count(77)

    def profile(self, name: str, **changes: Any) -> ClusterProfile:
        """Return a shipped profile whose nodes have `GPUS` GPUs, with modules and network of this world."""
        changes.setdefault("modules", {"init": str(self.modules_init) if name not in ("lab", "local") else None})
        changes.setdefault("node", {"gpus": 0 if name == "local" else GPUS})
        return profile(name, network_interface=None, queues={}, **changes)

    def plan(self, where: str, /, *, settings: Mapping[str, Any] | None = None, **job: Any) -> Plan:
        """Return a plan whose Python is the stub and whose command writes down what arrives."""
        if not {"train", "steps"} & job.keys():
            job.setdefault("command", ["python", "job.py"])
        return make(self.profile(where, **settings or {}), interpreter=str(self.bin / "python"), **job)

    def run(self, plan: Plan, *, env: Mapping[str, str] | None = None, jobdir: Path | None = None) -> Run:
        """Render and run, as its scheduler would."""
        script = self.folder / "script.sh"
        script.write_text(render(plan, jobdir=None if jobdir is None else str(jobdir)), encoding="utf-8")
        command, environment, folder = self.start(plan.profile.scheduler.type, script)
        before = set(self.submit_dir.glob("outputs/*/*"))
        done = subprocess.run(
            command, cwd=folder, env={**environment, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=240, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode(errors="replace")
        made = set(self.submit_dir.glob("outputs/*/*")) - before
        return Run(done.returncode, said, jobdir or (made.pop() if made else self.folder))

    def start(self, scheduler: SchedulerName, script: Path) -> tuple[list[str], dict[str, str], Path]:
        """Return command, environment and folder in which ``scheduler`` starts a script."""
        job_id = str(next(self._ids))
        lists = {
            "pbs": "node1\nnode1\nnode2\n",
            "gridengine": "node1 80 all.q@node1 UNDEFINED\nnode2 80 all.q@node2 UNDEFINED\n",
            "pjm": "node1\nnode2\n",
        }
        nodes = self.folder / "nodes"
        nodes.write_text(lists.get(scheduler, ""))
        submit = str(self.submit_dir)
        variables: dict[str, dict[str, str]] = {
            "slurm": {"SLURM_JOB_ID": job_id, "SLURM_SUBMIT_DIR": submit, "SLURM_JOB_NODELIST": "node[1-2]",
                      "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"},
            "pbs": {"PBS_JOBID": f"{job_id}.pbs1", "PBS_O_WORKDIR": submit, "PBS_NODEFILE": str(nodes)},
            "gridengine": {"JOB_ID": job_id, "SGE_O_WORKDIR": submit, "PE_HOSTFILE": str(nodes)},
            "pjm": {"PJM_JOBID": job_id, "PJM_O_WORKDIR": submit, "PJM_O_NODEINF": str(nodes)},
            "local": {},
        }  # fmt: skip
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "CANARY": str(self.canary),
            "STUB_HOSTS": "node1,node2", "STUB_GPUS": str(GPUS), "LANG": "C.UTF-8", **variables[scheduler],
        }  # fmt: skip
        return ["bash", str(script)], environment, self.submit_dir if scheduler == "local" else self.folder

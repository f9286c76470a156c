"""CPU time to render, list and ask for jobs: hpcjob beside qtoolkit, PSI/J, ReFrame and torchx, in one run.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install qtoolkit psij-python reframe-hpc torchx
    python benchmarks/jobtools.py --peers /tmp/peers [--runs 9] [--jobs 1000] [--json]

User and system time of whole processes with their children, medians, in turn. Slurm's commands are scripts that print
files, so that nobody waits for a scheduler: squeue and sacct tell of ``--jobs`` jobs in the format that is asked for.
What each tool is asked to do is printed below the table; it is the nearest that it has, seldom quite the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TASKS = ("render", "list", "status")
TOOLS = ("hpcjob", "qtoolkit", "psij-python", "reframe-hpc", "torchx")
_BIN = Path(sys.executable).parent
_SUBMITTED = "2026-11-30T00:00:00.000000+00:00"
_FIRST = 100_001  # id of the first job

_QTOOLKIT = """
import os
from qtoolkit.core.data_objects import QResources
from qtoolkit.host.local import LocalHost
from qtoolkit.io.slurm import SlurmIO
from qtoolkit.manager import QueueManager
manager = QueueManager(SlurmIO(), LocalHost())
"""
_PSIJ = """
import io
from datetime import timedelta
from pathlib import Path
from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
executor = JobExecutor.get_instance("slurm")
"""
_REFRAME_SETTINGS = """
site_configuration = {
    "systems": [{"name": "generic", "hostnames": [".*"], "stagedir": "stage", "outputdir": "output", "partitions": [
        {"name": "gpu", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"], "access": ["-p gpu"]}]}],
    "environments": [{"name": "builtin"}],
    "logging": [{"handlers": [{"type": "stream", "level": "info", "format": "%(message)s"}]}],
}
"""
_REFRAME_TEST = """
import reframe as rfm
import reframe.utility.sanity as sn
@rfm.simple_test
class Train(rfm.RunOnlyRegressionTest):
    valid_systems, valid_prog_environs = ["*"], ["*"]
    executable, executable_opts = "python", ["train.py", "--steps", "10"]
    num_tasks, num_tasks_per_node, time_limit = 16, 8, "12h"
    @sanity_function
    def done(self):
        return sn.assert_true(1)
"""
_REFRAME_POLL = """
import time
from reframe.core.backends import getlauncher, getscheduler
from reframe.core.config import load_config
from reframe.core.runtime import init_runtime
from reframe.core.schedulers import Job
site = load_config("settings.py")
site.select_subconfig("generic")
init_runtime(site)
scheduler = getscheduler("squeue")(part_name="gpu")
job = Job.create(scheduler, getlauncher("srun")(), name="job")
job._jobid, job._submit_time = "{first}", 0.0
scheduler.poll(job)
assert job.state == "RUNNING", job.state
"""


def cases(peers: Path | None, jobs: int) -> dict[str, dict[str, tuple[list[str], str]]]:
    """Return task -> tool -> command line, and what it does in words."""
    last = _FIRST + jobs - 1
    own = str(_BIN / "hpcjob")
    found: dict[str, dict[str, tuple[list[str], str]]] = {
        "render": {"hpcjob": ([own, "render", "job.yml", "-p", "lab"], "render job.yml -p lab: script and checks")},
        "list": {"hpcjob": ([own, "list", "--all"], f"list --all: {jobs} records, state of each from squeue")},
        "status": {"hpcjob": ([own, "status", str(last)], f"status {last}")},
    }
    if peers is None:
        return found
    python = str(peers / "bin/python")
    options = "QResources(nodes=2, processes_per_node=8, gpus_per_job=16, queue_name='gpu', time_limit=43200)"
    spec = (
        "JobSpec(executable='python', arguments=['train.py'], resources=ResourceSpecV1(node_count=2, "
        "processes_per_node=8, gpu_cores_per_process=1), launcher='srun', "
        "attributes=JobAttributes(duration=timedelta(hours=12), queue_name='gpu'))"
    )
    script = (
        f"job = Job({spec})\nout = io.StringIO()\ncontext = executor._create_script_context(job)\n"
        "executor.generate_submit_script(job, context, out)\nprint(out.getvalue())"
    )
    ask = (
        f"told = executor.parse_status_output(0, executor._run_command(executor.get_status_command(['{last}'])))\n"
        f"print(told['{last}'])"
    )
    reframe, torchx = str(peers / "bin/reframe"), str(peers / "bin/torchx")
    found["render"] |= {
        "qtoolkit": (
            [python, "-c", f"{_QTOOLKIT}print(manager.get_submission_script('srun python train.py', {options}))"],
            "QueueManager.get_submission_script",
        ),
        "psij-python": ([python, "-c", _PSIJ + script], "SlurmJobExecutor.generate_submit_script"),
        "reframe-hpc": (
            [reframe, "-C", "settings.py", "-c", "check.py", "--dry-run"],
            "--dry-run of one test: its job script",
        ),
        "torchx": (
            [torchx, "run", "--dryrun", "-s", "slurm", "dist.ddp", "-j", "2x8", "--gpu", "8", "--script", "train.py"],
            "run --dryrun -s slurm dist.ddp -j 2x8",
        ),
    }
    found["list"] |= {
        "qtoolkit": (
            [python, "-c", f"{_QTOOLKIT}assert len(manager.get_jobs_list(user='me')) == {jobs}"],
            f"QueueManager.get_jobs_list: {jobs} jobs with states, from squeue",
        ),
        "psij-python": (
            [python, "-c", f"{_PSIJ}assert len(executor.list()) == {jobs}"],
            f"JobExecutor.list: {jobs} ids without states",
        ),
        "reframe-hpc": (
            [reframe, "-C", "settings.py", "-c", "check.py", "--list"],
            "--list: its tests; it lists no jobs",
        ),
        "torchx": ([torchx, "list", "-s", "slurm"], f"list -s slurm: {jobs} jobs with states, from sacct --json"),
    }
    found["status"] |= {
        "qtoolkit": (
            [python, "-c", f"{_QTOOLKIT}assert manager.get_job('{_FIRST}').job_id == '{_FIRST}'"],
            "QueueManager.get_job: scontrol show job",
        ),
        "psij-python": ([python, "-c", _PSIJ + ask], f"the executor's status command and its parser: {jobs} jobs"),
        "reframe-hpc": (
            [python, "-c", _REFRAME_POLL.format(first=_FIRST)],
            "SqueueJobScheduler.poll of one job; it has no command for that",
        ),
        "torchx": ([torchx, "status", f"slurm://torchx/{_FIRST}"], "status slurm://torchx/ID: sacct of that job"),
    }
    return found


# --- a queue that answers at once -----------------------------------------------------------------------------------

# Which file a command prints is told by the words that each tool gives it.
_COMMANDS = {
    "squeue": """case "$*" in
  *'%i|%T|%r|%j'*) cat {folder}/hpcjob ;;
  *'<><>'*) cat {folder}/qtoolkit ;;
  *JobArrayID*) cat {folder}/psij ;;
  *'-o %i'*) cat {folder}/ids ;;
  *) echo '{first}|RUNNING|node1|None' ;;
esac""",
    "sacct": """case "$*" in
  *--json*) cat {folder}/json ;;
  *) printf 'JobID|JobName|Partition|State|ExitCode\\n{first}|train-0|gpu|RUNNING|0:0\\n' ;;
esac""",
    "scontrol": "cat {folder}/scontrol",
    "sinfo": "echo 'gpu 515000'",
    "sbatch": "exit 1",
}
_SCONTROL = (
    "JobId={first} JobName=train UserId=me(1000) GroupId=me(1000) MCS_label=N/A Priority=1 Nice=0 Account=g QOS=normal "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:10:00 TimeLimit=12:00:00 TimeMin=N/A SubmitTime=2026-11-30T00:00:00 Partition=gpu NumNodes=2 "
    "NumCPUs=16 NumTasks=16 CPUs/Task=1 MinMemoryNode=0 Command=/w/job.sh WorkDir=/w\n"
)


def prepare(folder: Path, jobs: int) -> dict[str, str]:
    """Write commands, answers, records and inputs; return the environment to run in."""
    answers, bin_ = folder / "answers", folder / "bin"
    for each in (answers, bin_, folder / "state/hpcjob"):
        each.mkdir(parents=True)
    ids = range(_FIRST, _FIRST + jobs)
    rows = {
        "hpcjob": "".join(f"{number}|RUNNING|None|train\n" for number in ids),
        "qtoolkit": "".join(
            "<><> ".join([str(number), "R", "None", "train", "me", "gpu", "12:00:00", "2", "16", "10:00", "0"]) + "\n"
            for number in ids
        ),
        "psij": "JOBARRAYID          ST                  REASON\n"
        + "".join(f"{number:<20}R                   None\n" for number in ids),
        "ids": "".join(f"{number}\n" for number in ids),
        # Of what sacct --json says of a job, the two things that torchx reads: a hundredth of it.
        "json": json.dumps({"jobs": [{"job_id": number, "state": {"current": "RUNNING"}} for number in ids]}),
        "scontrol": _SCONTROL.format(first=_FIRST),
    }
    for name, text in rows.items():
        (answers / name).write_text(text)
    for name, body in _COMMANDS.items():
        path = bin_ / name
        path.write_text(f"#!/bin/sh\n{body.format(folder=answers, first=_FIRST)}\n")
        path.chmod(0o755)
    lines = (
        {"event": "submitted", "profile": "lab", "scheduler": "slurm", "server": "", "id": str(number), "name": "train",
         "submitted": _SUBMITTED, "directory": f"/w/outputs/train/{number}", "nodes": 2}
        for number in ids
    )  # fmt: skip
    (folder / "state/hpcjob/lab@login.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "job.yml").write_text("schema: 1\nname: train\nnodes: 2\ncommand: [python, train.py, --steps, '10']\n")
    for name, text in (("settings.py", _REFRAME_SETTINGS), ("check.py", _REFRAME_TEST), ("train.py", "")):
        (folder / name).write_text(text)
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE")}
    return {**os.environ, **own, "HOME": str(folder), "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}


# --- measuring ------------------------------------------------------------------------------------------------------


def cpu_ms(argv: list[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Return the CPU time of one run. Raises RuntimeError, with what it said, if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{argv[:4]} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def versions(peers: Path | None) -> dict[str, str]:
    """Return the version of each tool."""
    code = "import importlib.metadata as m, sys; print(*(m.version(name) for name in sys.argv[1:]))"
    found: dict[str, str] = {}
    for python, names in ((sys.executable, TOOLS[:1]), (peers and str(peers / "bin/python"), TOOLS[1:])):
        if python:
            said = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True).stdout
            found.update(zip(names, said.split(), strict=True))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="hpcjob beside comparable tools: CPU time.")
    parser.add_argument("--peers", type=Path, help="virtual environment of the other tools (see the docstring)")
    parser.add_argument("--runs", type=int, default=9, help="runs of each command (default: 9)")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs in the queue (default: 1000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object: task -> tool -> median, ms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = prepare(folder, options.jobs)
        every = cases(options.peers and options.peers.absolute(), options.jobs)
        taken: dict[tuple[str, str], list[float]] = {}
        for turn in range(options.runs + 1):  # the first fills caches
            for task, tools in every.items():
                for tool, (argv, _) in tools.items():
                    spent = cpu_ms(argv, folder, environment)
                    if turn:
                        taken.setdefault((task, tool), []).append(spent)
    medians = {task: {tool: statistics.median(taken[task, tool]) for tool in every[task]} for task in TASKS}
    if options.json:
        print(json.dumps(medians))
        return
    told = versions(options.peers)
    print(f"CPU time, ms (ratio to hpcjob); {options.jobs} jobs, median of {options.runs} runs")
    print(f"{'':22}" + "".join(f"{task:>18}" for task in TASKS))
    for tool in every["render"]:
        cells = (f"{medians[task][tool]:.0f} ({medians[task][tool] / medians[task]['hpcjob']:.1f})" for task in TASKS)
        print(f"{tool + ' ' + told[tool]:22}" + "".join(f"{cell:>18}" for cell in cells))
    for task in TASKS:
        print(f"\n{task}")
        for tool, (_, words) in every[task].items():
            print(f"  {tool:14} {words}")


if __name__ == "__main__":
    main()

"""What runs in a job: ``python -m hpcjob.plugins.task FOLDER PICKLES``, once for each task.

The function's output goes to the files that submitit reads, the rest stays in the log of the job script.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from submitit.core import job_environment, submission, utils

from hpcjob.plugins.environment import FunctionJobEnvironment, hostnames
from hpcjob.plugins.job import take_pickle


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the function of this task and pickle what comes of it."""
    parser = argparse.ArgumentParser(prog="hpcjob.plugins.task")
    parser.add_argument("folder", help="the executor's folder")
    parser.add_argument("pickles", help="the name under which the functions wait there until the job's id is known")
    parser.add_argument("--job", help="id of the job from which this one took over")
    parser.add_argument("--merge", action="store_true", help="one log of stdout and stderr")
    given = parser.parse_args(arguments)
    set_variables(given.job or os.environ["HPCJOB_JOB_ID"])
    os.environ["SUBMITIT_FOLDER"] = given.folder
    environment = job_environment.JobEnvironment()
    paths = environment.paths
    paths.folder.mkdir(parents=True, exist_ok=True)
    waiting = utils.JobPaths.get_first_id_independent_folder(given.folder)
    take_pickle(waiting / f"{given.pickles}_{os.environ.get('HPCJOB_ARRAY_INDEX', 0)}.pkl", paths)
    # Left by an attempt that was killed while it wrote; submitit refuses to go on beside it.
    for path in (paths.result_pickle, *([paths.submitted_pickle] if environment.global_rank == 0 else [])):
        path.with_suffix(f"{path.suffix}.save_tmp").unlink(missing_ok=True)
    _redirect(paths, merge=given.merge)
    submission.process_job(given.folder)


def set_variables(job_id: str) -> None:
    """Set what `FunctionJobEnvironment` reads; nothing of another job stays."""
    array, _, index = job_id.rpartition("_")
    if not index.isdigit():
        array = ""
    tasks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    nodes = len(hostnames()) or 1
    values = {
        "job_id": job_id,
        "array_job_id": array,
        "array_task_id": index if array else "",
        "num_tasks": tasks,
        "num_nodes": nodes,
        "node": rank * nodes // tasks,
        "global_rank": rank,
        "local_rank": os.environ.get("LOCAL_RANK", "0"),
    }
    os.environ.update({FunctionJobEnvironment._env[name]: str(value) for name, value in values.items()})


def _redirect(paths: utils.JobPaths, *, merge: bool) -> None:
    """Let this process, and what it starts, write to the logs that submitit reads."""
    print(
        f"hpcjob: the function's output goes to {paths.stdout}" + ("" if merge else f" and {paths.stderr}"), flush=True
    )
    for path, number in ((paths.stdout, 1), (paths.stdout if merge else paths.stderr, 2)):
        _stand_in(path, number)


def _stand_in(path: Path, number: int) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, number)
    os.close(log)


if __name__ == "__main__":
    main()

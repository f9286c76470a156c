"""Slurm: sbatch, squeue first, then sacct, scancel.

Source: man pages of sbatch, squeue, sacct and scancel, 22.05 to 25.05 (https://slurm.schedmd.com/archive/).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence

from hpcjob.errors import SchedulerError
from hpcjob.schedulers import commands
from hpcjob.schedulers.base import Answer, JobRef, Mark, Report, ShellRequest, Submission, Submitted
from hpcjob.schedulers.command_scheduler import CommandScheduler, bare_id, livelier
from hpcjob.states import State

_MakeReport = Callable[[State, str, str], Report]
_STATES = {
    "BOOT_FAIL": State.NODE_FAIL,
    "CANCELLED": State.CANCELLED,
    "COMPLETED": State.COMPLETED,
    "COMPLETING": State.COMPLETING,
    "CONFIGURING": State.PENDING,
    "DEADLINE": State.TIMEOUT,
    "FAILED": State.FAILED,
    "NODE_FAIL": State.NODE_FAIL,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "PENDING": State.PENDING,
    "POWER_UP_NODE": State.PENDING,
    "PREEMPTED": State.PREEMPTED,
    "REQUEUED": State.PENDING,
    "REQUEUE_FED": State.PENDING,
    "REQUEUE_HOLD": State.PENDING,
    "RESIZING": State.RUNNING,
    "RESV_DEL_HOLD": State.PENDING,
    "RUNNING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "SPECIAL_EXIT": State.PENDING,
    "STAGE_OUT": State.COMPLETING,
    "STOPPED": State.SUSPENDED,
    "SUSPENDED": State.SUSPENDED,
    "TIMEOUT": State.TIMEOUT,
}
_PARSABLE_ID = re.compile(r"^(\d+)(?:;([\w.-]+))?$", re.MULTILINE)
_SPOKEN_ID = re.compile(r"^Submitted batch job (\d+)(?: on cluster ([\w.-]+))?", re.MULTILINE)
_ROW_ID = re.compile(r"([0-9]+)(?:\+[0-9]+)?(?:_([0-9]+|\[[^\]]*\]))?")
_ELEMENT = re.compile(r"([0-9]+)_([0-9]{1,18})")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
_EXIT_CODE = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$", re.MULTILINE)
_CLUSTER_BANNER = re.compile(r"CLUSTER: \S+")
_COMMENT = re.compile(r"--comment(?:[=\s]|$)")
_QUEUE_HEADER = "JOBID|STATE|REASON|NAME"
_HISTORY_HEADER = "JobID|State|ExitCode|JobName"
_LOOKUP_HEADER = "JOBID|COMMENT|COMMAND"
# The request may have reached the controller before the answer was lost.
_UNCLEAR = r"timed out|connection reset|zero bytes were transmitted|unexpected message|transport endpoint|broken pipe"
# Of sbatch alone, or of no use in a terminal.
_NOT_OF_A_SHELL = ("--output", "--open-mode", "--no-requeue", "--signal", "--mail-type", "--mail-user")
_ASSOCIATIONS = "`sacctmgr show assoc user=$USER format=account,qos` lists yours"
_ENDED_WITH_THE_JOB = (-signal.SIGTERM, -signal.SIGKILL)
"""Codes of a command that runs in the job whose end it asks for: Slurm may end it before it has its answer."""
_HINTS = {
    r"invalid account|account.*(?:not permitted|not valid)": f"choose another --account; {_ASSOCIATIONS}",
    r"partition.*(?:not available|not permitted|specified)": "choose another --queue; `sinfo -s` lists the partitions",
    r"invalid qos": f"choose another QOS (`qos`); {_ASSOCIATIONS}",
    r"QOSM|AssocM|AssocGrp|QOSGrp|job submit limit|accounting/QOS policy": (
        "a limit of your account or QOS: fewer --nodes, a shorter --walltime, or wait until other jobs have ended"
    ),
    r"time limit": "choose a shorter --walltime; `sinfo -o '%P %l'` shows each partition's limit",
    r"invalid generic resource|gres": "change --gpus-per-node, or gpu_request in the profile",
    r"node count|node configuration is not available|more processors|CPU count": (
        "choose fewer --nodes or --gpus-per-node; `sinfo -Nl` shows what the nodes have"
    ),
    r"memory specification": "change `memory:` in the job file; `sinfo -Nl` shows what the nodes have",
    r"reservation": "change `reservation:` in the job file; `scontrol show reservation` lists them",
    r"unable to contact slurm controller|connection refused": "nothing was submitted; try again when Slurm answers",
    r"could not establish a configuration source": "run this on a login node of that cluster, or use another --profile",
    r"invalid job array": "smaller indices, or fewer elements; `scontrol show config | grep MaxArraySize`",
    r"dependency": "change `after`; a job that has ended long ago is not known any more",
    r"invalid directive|unrecognized option": "change the directives: hpcjob submit --dry-run shows them",
}


class SlurmScheduler(CommandScheduler):
    """Slurm by its commands. All of the user's jobs are asked for at once, so an id that is gone is no error."""

    type = "slurm"
    unclear = _UNCLEAR
    hints = _HINTS
    hands_down_environment = True  # --export=ALL is sbatch's default
    restartable = "--requeue"

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """``sbatch`` with a comment by which the job is found again; a comment of the user's own stays."""
        extra = (*submission.plan.profile.scheduler.extra, *submission.plan.job.extra)
        own = any(_COMMENT.match(directive) for directive in extra)
        return "sbatch", "--parsable", *(() if own else (f"--comment={submission.tag}",)), str(submission.script)

    def shell_command(self, request: ShellRequest) -> list[str]:
        """``salloc``, and in it a step on the first node that takes nothing away from others (``--overlap``).

        It has all of the job's CPUs there; where the site binds tasks to cores (slurm.conf, TaskPluginParam), its one
        task would be bound to one, with all that it starts.
        """
        options = request.without(*_NOT_OF_A_SHELL)
        step = ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none"]
        step += ["--overlap", "--preserve-env", "--pty"]
        return [*(request.command or ("salloc",)), *options, "srun", *step, str(request.shell)]

    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Read ``ID`` or ``ID;CLUSTER``, or sbatch's sentence where a wrapper drops the option.

        A number that is not the last line, or one of several, may be of a site's banner: then none is believed, and the
        job is looked up.
        """
        spoken = _SPOKEN_ID.findall(f"{stdout}\n{stderr}")
        found = {*_PARSABLE_ID.findall(stdout), *spoken}
        return Submitted(*found.pop()) if len(found) == 1 and (spoken or bare_id(_PARSABLE_ID, stdout)) else None

    def query_id(self, job: JobRef) -> str:
        """See `CommandScheduler.query_id`."""
        return job.array or job.id

    def named(self, answer: Answer, jobs: Sequence[JobRef]) -> Answer:
        """See `CommandScheduler.named`; a row such as ``5_[1-3,7%2]`` speaks for elements that wait."""
        return super().named(_with_elements(answer, jobs), jobs)

    def queue_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """All jobs of this user: ``squeue -j ID`` fails for a job that is gone, and a list of ids has no end."""
        return ["squeue", f"--user={os.getuid()}", "--states=all", *_at(cluster), "--format=%i|%T|%r|%j"]

    def parse_queue(self, stdout: str) -> Answer:
        """See `CommandScheduler.parse_queue`; the elements of an array that wait stay one row, ``5_[1-3,7%2]``."""
        return _read(stdout, _QUEUE_HEADER, lambda state, reason, name: Report(state, None, _reason(reason), name))

    def start_command(self, job_id: str, cluster: str | None) -> list[str]:
        """What the backfill scheduler expects, of which `queue_command` would tell only that a job runs since then."""
        return ["squeue", "--start", "--noheader", *_at(cluster), f"--jobs={job_id}", "--format=%S"]

    def parse_start(self, stdout: str) -> str | None:
        """Read ``2026-12-01T04:00:00``, the earliest of an array's; ``N/A`` while there is none."""
        return min(_TIME.findall(stdout), default="").replace("T", " ") or None

    def history_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Without ids sacct leaves out jobs that were never eligible, and those of yesterday."""
        columns = _HISTORY_HEADER.replace("|", ",")
        return [
            "sacct",
            "--allocations",
            "--parsable2",
            f"--format={columns}",
            *_at(cluster),
            f"--jobs={','.join(ids)}",
        ]

    def parse_history(self, stdout: str) -> Answer:
        """See `CommandScheduler.parse_history`."""
        return _read(
            stdout, _HISTORY_HEADER, lambda state, code, name: Report(state, _exit_code(state, code), None, name)
        )

    def lookup_command(self, mark: Mark) -> list[str]:
        """See `CommandScheduler.lookup_command`."""
        return ["squeue", f"--user={os.getuid()}", "--states=all", "--format=%i|%k|%o"]

    def parse_lookup(self, stdout: str, mark: Mark) -> Submitted | None:
        """Find the row with our comment, or with our script: its path is this submission's alone."""
        header, rows = _table(stdout, _LOOKUP_HEADER)
        if not header:
            raise SchedulerError(f"squeue: not a list of jobs: {stdout[:80]!r}")
        for row in rows:
            job_id = _ROW_ID.match(row)
            if job_id and (f"|{mark.tag}|" in row or row.endswith(f"|{mark.script}")):
                return Submitted(job_id[1])
        return None

    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.cancel_command`."""
        return ["scancel", *_at(cluster), *ids]

    def restart(self, job: JobRef) -> bool:
        """``scontrol requeue``: the job waits again; Slurm ends its processes."""
        finished = commands.run(["scontrol", "requeue", self.own_id(job)], timeout_s=self.query_timeout_s)
        if finished.code not in (0, *_ENDED_WITH_THE_JOB):
            raise SchedulerError(
                f"scontrol: {finished.said}", hint="the cluster may forbid it: JobRequeue of slurm.conf"
            )
        return True

    def hold_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.hold_command`."""
        return ["scontrol", *_at(cluster), "hold", ",".join(ids)]

    def release_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.release_command`."""
        return ["scontrol", *_at(cluster), "release", ",".join(ids)]


def _at(cluster: str | None) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def state_of(word: str) -> State:
    """Return the state that Slurm's word means; an unknown word is no end of a job.

    ``CANCELLED by 1000`` has its user cut off, ``CANCELLED+`` the mark of a shortened column.
    """
    first = word.split(maxsplit=1)[0].rstrip("+").upper() if word.strip() else ""
    return _STATES.get(first, State.UNKNOWN)


def _table(stdout: str, header: str) -> tuple[bool, list[str]]:
    """Return whether the header came, and the rows; Slurm's own banner before a cluster's table is left out."""
    lines = [line for line in stdout.split("\n") if line.strip() and not _CLUSTER_BANNER.fullmatch(line.strip())]
    start = next((number for number, line in enumerate(lines) if line.strip() == header), None)
    return start is not None, [] if start is None else lines[start + 1 :]


def _read(stdout: str, header: str, report: _MakeReport) -> Answer:
    whole, rows = _table(stdout, header)
    if not whole:
        return Answer(problem=f"not a list of jobs: {stdout[:80]!r}")
    reports: dict[str, Report] = {}
    strange = []
    for row in rows:
        job_id, *fields = row.split("|", 3)
        match = _ROW_ID.fullmatch(job_id.strip())
        if match is None or len(fields) != 3:
            strange.append(row)
            continue
        told = report(state_of(fields[0]), fields[1], fields[2])
        if told.state is State.UNKNOWN:
            told = Report(told.state, told.exit_code, f"Slurm reports {fields[0].strip()!r}", told.name)
        elif told.reason is None and fields[0].startswith("CANCELLED by "):
            told = Report(told.state, told.exit_code, fields[0].strip().lower(), told.name)
        for name in _ids(match):
            reports[name] = livelier(reports.get(name), told)
    return Answer(reports, f"rows that are none of a list of jobs: {strange[0][:80]!r}" if strange else None)


def _ids(match: re.Match[str]) -> Iterator[str]:
    """Yield the ids that a row speaks for: the job itself, and an array's element or elements as they are written."""
    base, index = match.groups()
    yield base
    if index:
        yield f"{base}_{index}"


def _with_elements(answer: Answer, jobs: Sequence[JobRef]) -> Answer:
    """Return ``answer`` with a report on each element asked for that a row such as ``5_[1-3,7%2]`` speaks for.

    The elements are not written out: a row may speak for millions of them.
    """
    rows: dict[str, list[tuple[str, Report]]] = {}
    for name, told in answer.reports.items():
        base, bracket, ranges = name.partition("_[")
        if bracket:
            rows.setdefault(base, []).append((ranges, told))
    reports = dict(answer.reports)
    for element in (_ELEMENT.fullmatch(job.id) for job in jobs):
        if element is not None:
            for ranges, told in rows.get(element[1], ()):
                if _within(int(element[2]), ranges):
                    reports[element[0]] = livelier(reports.get(element[0]), told)
    return Answer(reports, answer.problem)


def _within(index: int, ranges: str) -> bool:
    """Return whether ``1-3,7%2]`` names the element; ``%2`` is how many may run at once, ``0-8:4`` has a step."""
    for part in ranges.rstrip("]").partition("%")[0].split(","):
        if span := _RANGE.fullmatch(part):
            first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1) or 1
            if first <= index <= last and (index - first) % step == 0:
                return True
    return False


def _reason(text: str) -> str | None:
    """Return squeue's reason, unless it repeats the state or the exit code."""
    return None if text.strip() in ("", "None", "NonZeroExitCode", "OutOfMemory", "TimeLimit") else text.strip()


def _exit_code(state: State, text: str) -> int | None:
    """Read ``code:signal``. Slurm writes 0:0 for jobs that it ended itself, which is no exit code of theirs."""
    match = _EXIT_CODE.fullmatch(text)
    if match is None or state not in (State.COMPLETED, State.FAILED):
        return None
    code, number = map(int, match.groups())
    return 128 + number if number else code

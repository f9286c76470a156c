"""PBS Professional and OpenPBS: qsub, qstat, qdel, qhold, qrls, qselect.

Jobs are asked for with ``qstat -f``, whose text every version and every site's wrapper prints. Its JSON is left alone:
it is invalid for some values of the environment, and OpenPBS of 2026 prints only the first of several jobs in it.

Sources: qsub(1B), qstat(1B), ``src/cmds/qstat.c`` and ``src/include/job.h`` of github.com/openpbs/openpbs at cd7ab5eda;
a running OpenPBS 23.06.06 (2026-11); for Miyabi's own qstat github.com/RIKEN-RCCS/OpenComposer at 4330e3a.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcjob.errors import SchedulerError
from hpcjob.schedulers import commands
from hpcjob.schedulers.base import Answer, JobRef, Mark, Report, ShellRequest, Submission, Submitted, require_plain
from hpcjob.schedulers.command_scheduler import CommandScheduler, the_one, whole_lines
from hpcjob.states import State

_ID = re.compile(r"^(\d+(?:\[\d*\])?\.[\w.-]+)$", re.MULTILINE)
_RECORD_ID = re.compile(r"Job Id: (\d+(?:\[\d*\])?(?:\.[\w.-]+)?)")
_ATTRIBUTE = re.compile(r" {4}([A-Za-z][\w.]*) = (.*)")
_ARGUMENT = re.compile(r"\d+(?:\[\d*\])?(?:\.[\w.-]+)?")
_SEQUENCE = re.compile(r"\d+(?:\[\d*\])?(?=[.\s]|$)")
_LAST = {"project", "Submit_Host"}
_GONE = re.compile(r"Unknown Job Id|has finished", re.IGNORECASE)
_LIVE = {
    "Q": State.PENDING,
    "H": State.PENDING,
    "W": State.PENDING,
    "T": State.PENDING,
    "R": State.RUNNING,
    "B": State.RUNNING,
    "E": State.COMPLETING,
    "S": State.SUSPENDED,
    "U": State.SUSPENDED,
}
# Negative exit statuses are PBS's own (JOB_EXEC_* of job.h).
_OWN_STATUS = {
    -20: (State.NODE_FAIL, "its first node was lost"),
    -26: (State.OUT_OF_MEMORY, "used more virtual memory than requested"),
    -27: (State.OUT_OF_MEMORY, "used more memory than requested"),
    -28: (State.TIMEOUT, "used more CPU time than requested"),
    -29: (State.TIMEOUT, None),
}
_DEPENDENT, _DELETED, _FINISHED = "22", "91", "92"
_UNCLEAR = r"end of file|protocol|timed? ?out|premature end|connection reset|broken pipe"
_HINTS = {
    r"unknown queue|queue is not enabled": "choose another --queue; `qstat -Q` lists the queues",
    r"unauthorized|group|project|account|gid": "choose another --account; your groups are what `id -Gn` prints",
    r"violates queue|resource limits": "fewer --nodes or a shorter --walltime; `qstat -Qf QUEUE` shows the limits",
    r"per-user limit|queue size limit": "wait until other jobs of yours have ended",
    r"unknown resource|illegal attribute": "change `select` in the profile or `extra:` in the job file",
    r"directive error|illegal -|usage:": "change the directives: hpcjob submit --dry-run shows them",
    r"cannot connect|connection refused|no route": "nothing was submitted; try again when the server answers",
    r"pbs conf|unknown host": "run this on a login node of that cluster, or use another --profile",
}


class PbsScheduler(CommandScheduler):
    """PBS by its commands."""

    type = "pbs"
    unclear = _UNCLEAR
    hints = _HINTS
    asks_by_id = True

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """``qsub SCRIPT``: the rest is in its directives; the environment stays here (no ``-V``)."""
        return "qsub", str(submission.script)

    def shell_command(self, request: ShellRequest) -> list[str]:
        """``qsub -I``, whose shell is the program of ``-S`` (``finish_exec`` of ``src/resmom/start_exec.c``)."""
        require_plain(request.shell, "qsub -S")
        options = request.without("-e", "-J", "-j", "-k", "-M", "-m", "-o", "-r")
        return [*(request.command or ("qsub", "-I")), *options, "-S", str(request.shell)]

    def own_id(self, job: JobRef) -> str:
        """An array is ``123[].pbs1`` here, its element ``123[7].pbs1``; to hpcjob 123.pbs1 and 123.pbs1_7."""
        if job.array is None and job.spec is None:
            return job.id
        number, dot, server = (job.array or job.id).partition(".")
        return f"{number}[{job.task if job.array else ''}]{dot}{server}"

    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Read the line that is an id and nothing else: ``123.pbs1``, of an array ``123[].pbs1``."""
        return the_one(_ID.findall(stdout))

    def trouble(self, finished: commands.Finished) -> str | None:
        """Codes 35 and 153 say that a job has finished or is unknown; the others are answered for all the same.

        A query has a word on each job that it names, or else the answer is not whole.
        """
        lines = [line for line in finished.stderr.splitlines() if line.strip()]
        gone = finished.code in (35, 153) and lines and all(_GONE.search(line) for line in lines)
        if not gone and (problem := super().trouble(finished)):
            return problem
        if Path(finished.argv[0]).name != "qstat":
            return None
        said = set(_SEQUENCE.findall(finished.stdout + finished.stderr))
        silent = [word for word in finished.argv if _ARGUMENT.fullmatch(word) and word.partition(".")[0] not in said]
        return f"no information on {silent[0]}" if silent else None

    def queue_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Jobs that have ended are not in it."""
        return ["qstat", *_elements_too(ids), "-f", *ids]

    def parse_queue(self, stdout: str) -> Answer:
        """Read records; what stands before the first is a site's banner. No record: none of the jobs is there."""
        reports: dict[str, Report] = {}
        lines, problem = whole_lines(stdout)
        records = list(_records(lines))
        # A blank line ends each record; where the last lacks both it and what comes last in a record, it was cut.
        if records and lines[-1] and not _LAST & records[-1][1].keys():
            problem = f"the record of {records.pop()[0]} was cut"
        for job_id, attributes in records:
            report = report_of(attributes)
            if report is None:
                problem = f"no state for {job_id}"
                continue
            reports[job_id] = report
            reports[job_id.partition(".")[0]] = replace(report, id=job_id)
        return Answer(reports, problem)

    def start_command(self, job_id: str, cluster: str | None) -> list[str]:
        """Of a job for which PBS plans ahead this has the attribute ``estimated`` (pbs_job_attributes(7B))."""
        return ["qstat", "-f", job_id]

    def parse_start(self, stdout: str) -> str | None:
        """Read ``estimated.start_time = Sat Mar 22 10:00:00 2008``."""
        attributes = next((attributes for _, attributes in _records(stdout.split("\n"))), {})
        return attributes.get("estimated.start_time")

    def history_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """With ``-x``, jobs that have ended too."""
        return ["qstat", "-x", *_elements_too(ids), "-f", *ids]

    def history_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """Miyabi's qstat has ``-H``, and days, in the place of ``-x``."""
        return [self.history_command(ids, cluster), ["qstat", "-f", *_elements_too(ids), "-H", "--hday", "7", *ids]]

    def parse_history(self, stdout: str) -> Answer:
        """See `parse_queue`."""
        return self.parse_queue(stdout)

    def lookup(self, mark: Mark) -> Submitted | None:
        """Ask for the user's jobs, then for all that is known of them: a script's path is its submission's alone."""
        select = ["qselect", "-x", "-u", commands.user_name()]
        try:
            selected = commands.run(select, timeout_s=self.query_timeout_s)
        except commands.CommandMissingError:
            return super().lookup(mark)
        if selected.code != 0:
            raise SchedulerError(f"qselect: {selected.said}")
        lines, problem = whole_lines(selected.stdout)
        ids = [line for line in lines if _ID.fullmatch(line)]
        if problem or len(ids) != len(lines) or not ids:
            # No ids may mean that there are no jobs, and as well that it did not answer.
            raise SchedulerError(f"qselect: {problem or f'not a list of ids: {selected.stdout[:80]!r}'}")
        return self._found(["qstat", "-x", "-f", *ids], mark)

    def lookup_command(self, mark: Mark) -> list[str]:
        """All jobs, where there is no qselect."""
        return ["qstat", "-f"]

    def parse_lookup(self, stdout: str, mark: Mark) -> Submitted | None:
        """Find the job with our job directory among its arguments or in the path of its output."""
        records = list(_records(whole_lines(stdout)[0]))
        if not records and stdout.strip():
            raise SchedulerError(f"qstat: not a list of jobs: {stdout[:80]!r}")
        for job_id, attributes in records:
            paths = f"{attributes.get('Submit_arguments')} {attributes.get('Output_Path')}/"
            if f"{mark.jobdir}/" in paths:
                return Submitted(job_id)
        return None

    def _found(self, argv: list[str], mark: Mark) -> Submitted | None:
        finished = commands.run(argv, timeout_s=self.query_timeout_s)
        if problem := self.trouble(finished):
            raise SchedulerError(f"qstat: {problem}")
        return self.find(mark, finished)

    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.cancel_command`."""
        return ["qdel", *ids]

    def hold_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.hold_command`."""
        return ["qhold", *ids]

    def release_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.release_command`."""
        return ["qrls", *ids]


def _elements_too(ids: Sequence[str]) -> list[str]:
    """Return the option with which the elements of an array are told too."""
    return ["-t"] if any("[]" in job_id for job_id in ids) else []


def _records(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield id and attributes of each job; of an attribute that a value imitates, the first counts.

    A line that begins with a tab goes on with the value above it, cut anywhere.
    """
    job_id: str | None = None
    attributes: dict[str, str] = {}
    last = ""
    for line in lines:
        if found := _RECORD_ID.fullmatch(line.strip()):
            if job_id is not None:
                yield job_id, attributes
            job_id, attributes, last = found[1], {}, ""
        elif attribute := _ATTRIBUTE.fullmatch(line):
            last = attribute[1] if attribute[1] not in attributes else ""
            attributes.setdefault(attribute[1], attribute[2])
        elif line.startswith("\t") and last:
            attributes[last] += line[1:]
    if job_id is not None:
        yield job_id, attributes


def report_of(attributes: Mapping[str, str]) -> Report | None:
    """Return what the attributes of a job say; None if its state is not among them."""
    name, comment = attributes.get("Job_Name"), attributes.get("comment")
    letter = attributes.get("job_state")
    if letter is None:
        return None
    if letter in _LIVE:
        # A job that PBS could not start is held by the system; a comment of a running job says only where it runs.
        reason = comment or (_held(attributes) if letter == "H" else None)
        return Report(_LIVE[letter], reason=reason if _LIVE[letter] is State.PENDING else None, name=name)
    if letter not in ("F", "X"):
        return Report(State.UNKNOWN, reason=f"PBS reports {letter!r}", name=name)
    return _ended(attributes, name)


def _held(attributes: Mapping[str, str]) -> str:
    """Say why a job is in state H: it was held, or it comes after another, and no qrls lets it start."""
    if attributes.get("substate") != _DEPENDENT:
        return "held"
    others = [part for part in attributes.get("depend", "").split(",") if part.startswith("after")]
    return "waits for " + (re.sub(r"@[\w.-]+", "", ", ".join(others)) or "another job")


def _ended(attributes: Mapping[str, str], name: str | None) -> Report:
    """Say how a job ended. Its state F tells nothing, and an exit status of 0 alone does not tell success."""
    substate, text = attributes.get("substate"), attributes.get("Exit_status", "")
    if substate == _DELETED:
        return Report(State.CANCELLED, reason="deleted", name=name)
    if not re.fullmatch(r"-?\d+", text):
        if substate == _FINISHED:
            return Report(State.CANCELLED, reason="PBS removed it: its dependency was not satisfied", name=name)
        return Report(State.UNKNOWN, reason="ended, PBS keeps no exit status of it", name=name)
    status = int(text)
    if status < 0:
        state, reason = _OWN_STATUS.get(status, (State.FAILED, f"PBS could not run it (exit status {status})"))
        return Report(state, reason=reason, name=name)
    if status >= 256:
        return Report(State.FAILED, 128 + status - 256, f"killed by signal {status - 256}", name)
    if status:
        return Report(State.FAILED, status, name=name)
    if substate not in (_FINISHED, None):
        return Report(State.FAILED, reason="PBS calls it failed: a node was lost, or a part of it failed", name=name)
    lost = attributes.get("Stageout_status") == "0"
    return Report(State.COMPLETED, 0, "its output could not be delivered" if lost else None, name)

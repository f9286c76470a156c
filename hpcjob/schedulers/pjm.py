"""Fujitsu's job operation software, "PJM" (Technical Computing Suite): pjsub, pjstat, pjdel, pjhold, pjrls.

``pjstat --data`` is asked first; a site's own pjstat without it, such as Wisteria's, is read as the table that it
prints. That table has the word END for every end: there the exit record has to tell the code, without one the job is
UNKNOWN.

Sources: the user guide of Fugaku 1.49 (r-ccs.riken.jp), chapters on job status and abnormal ends; ``fujitsu_tcs.rb``
of github.com/OSC/ood_core at 86656b38 and of github.com/RIKEN-RCCS/OpenComposer at 4330e3a; for Wisteria
github.com/adjtomo/seisflows at bcf99f82. None of this was tried on a machine that runs PJM.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from hpcjob.errors import InputError, SchedulerError
from hpcjob.schedulers.base import Answer, JobRef, Mark, Report, ShellRequest, Submission, Submitted, require_plain
from hpcjob.schedulers.command_scheduler import CommandScheduler, the_one, whole_lines
from hpcjob.schedulers.commands import Finished
from hpcjob.states import State

_SUBMITTED = re.compile(r"\bJob (\d+(?:_\d+)?) submitted")
_COLUMNS = "jid,jnam,st,ec,sn,pc"
_HEADER = ("H", "JOB_ID", "JOB_NAME", "ST", "EC", "SN", "PC")
_HISTORY_DAYS = 30
_GONE = re.compile(r"does not exist|already (?:finished|ended)", re.IGNORECASE)
# id name STATUS project rscgrp date...; the name is cut and may touch the status, a forecast stands in brackets.
_ROW = re.compile(r"(\d+(?:_\d+|\[\d+\])?)\s+(.*?)\s*(END|[A-Z]{4,})\s+\S+\s+\S+\s+[(\d-].*")
_FORECAST = re.compile(r"\((\d\d/\d\d \d\d:\d\d)\)")
_UNCLEAR = r"tim(?:ed )?(?:-| )?out|no response|communication|connection reset|broken pipe"
_LIVE = {
    "ACC": State.PENDING,
    "QUE": State.PENDING,
    "RNA": State.PENDING,
    "HLD": State.PENDING,
    "RNP": State.RUNNING,
    "RUN": State.RUNNING,
    "RSM": State.RUNNING,
    "RNE": State.COMPLETING,
    "RNO": State.COMPLETING,
    "SPP": State.SUSPENDED,
    "SPD": State.SUSPENDED,
}
# PJM's own code of an end that it brought about; 0: the job ended by itself.
_OWN_CODES = {
    "1": (State.CANCELLED, None),
    "2": (State.FAILED, "rejected"),
    "6": (State.CANCELLED, "removed: the step before it did not end as required"),
    "7": (State.TIMEOUT, "the deadline passed"),
    "11": (State.TIMEOUT, None),
    "12": (State.OUT_OF_MEMORY, None),
    "16": (State.FAILED, "its folder or an output file cannot be used"),
    "18": (State.PREEMPTED, None),
    "20": (State.NODE_FAIL, None),
    "23": (State.OUT_OF_MEMORY, None),
}
_SITE_LIVE = {"QUEUED": State.PENDING, "RUNNING": State.RUNNING, "HOLD": State.PENDING}
_HINTS = {
    r"\bjob [\d_]+ (?:does not exist|has already|is already)": (
        "a step job accepts no more steps once all that it has have ended: look how they ended (hpcjob status), then "
        "submit the rest by itself, without `after`"
    ),
    r"resource group|rscgrp|resource unit": "choose another --queue; `pjstat --rsc` lists the resource groups",
    r"group|project": "choose another --account",
    r"elapse": "change --walltime",
    r"limit|exceed|accept": "a limit of your group: `pjstat --limit`; wait until other jobs have ended",
    r"node": "change --nodes",
    r"not running|down": "nothing was submitted; try again when PJM answers",
}


class PjmScheduler(CommandScheduler):
    """PJM by its commands. All of the user's jobs are asked for at once."""

    type = "pjm"
    unclear = _UNCLEAR
    hints = _HINTS

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """``pjsub SCRIPT``: the rest is in its directives; the environment stays here (no ``-X``).

        Jobs that come after one another are the steps of one step job, and the options that say so depend on its id.
        """
        return "pjsub", *_step_options(submission), str(submission.script)

    def shell_command(self, request: ShellRequest) -> list[str]:
        """``pjsub --interact`` starts the login shell, which bash makes ours before its first prompt."""
        require_plain(request.shell, "pjsub -x")
        options = request.without("-e", "-j", "-m", "-o", "--bulk", "--mail-list", "--norestart", "--sparam")
        becomes = f"PROMPT_COMMAND=exec {request.shell}"
        return [*(request.command or ("pjsub", "--interact")), *options, "-x", becomes]

    def own_id(self, job: JobRef) -> str:
        """An element of a bulk job is ``123[7]`` here; 123_7 would be a step."""
        return job.id if job.array is None else f"{job.array}[{job.task}]"

    def query_id(self, job: JobRef) -> str:
        """All are asked for at once; ``[]`` says that elements are among them."""
        return f"{job.array or job.id}[]" if job.array or job.spec else job.id

    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Read ``[INFO] PJM 0000 pjsub Job 123 submitted.``; some versions print ``[INFO.]``; a step job is 123_0."""
        return the_one(_SUBMITTED.findall(f"{stdout}\n{stderr}"))

    def trouble(self, finished: Finished) -> str | None:
        """A job that is gone is none; an error on stdout is one whatever the exit code."""
        lines = [line for line in (finished.stderr + finished.stdout).splitlines() if re.match(r"\[(?:ERR|WARN)", line)]
        if lines:
            told = [line for line in lines if not _GONE.search(line)]
            return "; ".join(told)[:600] or None
        return super().trouble(finished)

    def queue_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """All jobs of this user that have not ended."""
        return ["pjstat", *_elements_too(ids), "--data", f"--choose={_COLUMNS}"]

    def queue_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """A site's own pjstat prints a table, and may take no other form."""
        return [self.queue_command(ids, cluster), ["pjstat", *_elements_too(ids)]]

    def parse_queue(self, stdout: str) -> Answer:
        """Read CSV, or a site's table."""
        lines, problem = whole_lines(stdout)
        answer = _read_csv(lines) if any(line.startswith("H,") for line in lines) else _read_table(lines)
        return Answer(answer.reports, answer.problem or problem)

    def start_command(self, job_id: str, cluster: str | None) -> list[str]:
        """The table for people: its column START_DATE has a forecast in brackets while a job waits."""
        return ["pjstat", job_id]

    def parse_start(self, stdout: str) -> str | None:
        """Read ``(10/30 18:00)``."""
        found = _FORECAST.search(stdout)
        return found[1] if found else None

    def history_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """Jobs that have ended; without ids, for one that is unknown would be an error."""
        return ["pjstat", *_elements_too(ids), "-H", f"day={_HISTORY_DAYS}", "--data", f"--choose={_COLUMNS}"]

    def history_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """As `queue_forms`."""
        return [self.history_command(ids, cluster), ["pjstat", *_elements_too(ids), "-H"]]

    def parse_history(self, stdout: str) -> Answer:
        """See `parse_queue`."""
        return self.parse_queue(stdout)

    def lookup_command(self, mark: Mark) -> list[str]:
        """With the paths of their output, which only the form for programs tells."""
        return ["pjstat", "--data", "--choose=jid,std"]

    def parse_lookup(self, stdout: str, mark: Mark) -> Submitted | None:
        """Find the job whose output goes into our job directory."""
        header, rows = _csv(whole_lines(stdout)[0])
        if header[:2] != ["H", "JOB_ID"]:
            raise SchedulerError(f"pjstat: not a list of jobs: {stdout[:80]!r}")
        found = (row[1] for row in rows if len(row) > 2 and f"{mark.jobdir}/" in ",".join(row[2:]))
        job_id = next(found, None)
        return Submitted(job_id) if job_id else None

    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.cancel_command`."""
        return ["pjdel", *ids]

    def hold_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.hold_command`."""
        return ["pjhold", *ids]

    def release_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.release_command`."""
        return ["pjrls", *ids]


def _elements_too(ids: Sequence[str]) -> list[str]:
    """Return the option with which the elements of bulk jobs are listed too."""
    return ["-E"] if any(job_id.endswith("[]") for job_id in ids) else []


def _step_options(submission: Submission) -> list[str]:
    """Return ``--step``, and with ``--sparam`` the step job that this one comes after.

    Raises:
        InputError: it comes after what is no step, or after several jobs.
    """
    after = submission.plan.after
    if not after:
        return ["--step"] if submission.first_of_chain else []
    if submission.plan.array is not None:
        raise InputError(
            "after: PJM does not accept a bulk job as a step", hint="remove `array`, or submit the elements as steps"
        )
    numbers = {one.own_id.partition("_")[0] for one in after}
    plain = next((one for one in after if "_" not in one.own_id or one.is_array), None)
    if plain is not None:
        raise InputError(
            f"after: job {plain.id} is not a step, and PJM lets only the steps of one step job wait for each other",
            hint="submit both at once: hpcjob submit FIRST.yml SECOND.yml --chain",
        )
    if len(numbers) > 1:
        raise InputError(
            f"after: steps of different step jobs ({', '.join(sorted(numbers))})", hint="name jobs of one chain"
        )
    return ["--step", "--sparam", f"jid={numbers.pop()}"]


def _csv(lines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the header (it begins with ``H``) and the rows behind it (they begin with an empty field), if any."""
    try:
        rows = [row for row in csv.reader(lines) if row]
    except csv.Error:
        return [], []
    start = next((number for number, row in enumerate(rows) if row[0] == "H"), None)
    return ([], []) if start is None else (rows[start], rows[start + 1 :])


def _read_csv(lines: Sequence[str]) -> Answer:
    header, rows = _csv(lines)
    if tuple(header) != _HEADER:
        return Answer(problem=f"other columns than requested: {','.join(header)[:80]!r}")
    reports: dict[str, Report] = {}
    for row in rows:
        if len(row) != len(header) or row[0] or not row[-1]:
            return Answer(reports, f"a row that was cut: {','.join(row)[:80]!r}")
        fields = dict(zip(header, row, strict=True))
        reports[fields["JOB_ID"]] = _report(fields)
    return Answer(reports)


def _report(fields: Mapping[str, str]) -> Report:
    word, name = fields["ST"], fields["JOB_NAME"]
    if word in _LIVE:
        return Report(_LIVE[word], reason="held" if word == "HLD" else None, name=name)
    if word == "CCL":
        return Report(State.CANCELLED, name=name)
    if word in ("ERR", "RJT"):
        return Report(State.FAILED, reason={"ERR": "PJM keeps it in error", "RJT": "rejected"}[word], name=name)
    if word != "EXT":
        return Report(State.UNKNOWN, reason=f"PJM reports {word!r}", name=name)
    code, signal, own = fields["EC"], fields["SN"], fields["PC"]
    if own in _OWN_CODES:
        state, reason = _OWN_CODES[own]
        return Report(state, reason=reason, name=name)
    if own != "0":
        return Report(State.FAILED if own.isdigit() else State.UNKNOWN, reason=f"ended with PJM code {own}", name=name)
    if signal.isdigit() and int(signal):
        return Report(State.FAILED, 128 + int(signal), f"killed by signal {signal}", name)
    if not code.isdigit():
        return Report(State.UNKNOWN, reason="ended, PJM reports no code", name=name)
    return Report(State.FAILED if int(code) else State.COMPLETED, int(code), name=name)


def _read_table(lines: Sequence[str]) -> Answer:
    lines = [line for line in lines if line.strip()]
    heads = (number for number, line in enumerate(lines) if line.split()[:3] == ["JOB_ID", "JOB_NAME", "STATUS"])
    start = next(heads, None)
    if start is None:
        told = " ".join(lines)[:80]
        return Answer(problem=f"not a list of jobs: {told!r}")
    reports: dict[str, Report] = {}
    for line in lines[start + 1 :]:
        row = _ROW.fullmatch(line.strip())
        if row is None:
            return Answer(reports, f"a row that is none of a list of jobs: {line[:80]!r}")
        reports[row[1]] = _site_report(row[3], row[2])
    return Answer(reports)


def _site_report(word: str, name: str) -> Report:
    if word in _SITE_LIVE:
        return Report(_SITE_LIVE[word], reason="held" if word == "HOLD" else None, name=name)
    if word == "CANCEL":
        return Report(State.CANCELLED, name=name)
    if word in ("ERROR", "REJECT"):
        return Report(State.FAILED, reason=f"pjstat reports {word}", name=name)
    if word == "END":
        return Report(State.UNKNOWN, reason="ended; this site's pjstat does not report how", name=name)
    return Report(State.UNKNOWN, reason=f"pjstat reports {word!r}", name=name)

"""Grid Engine (Univa and Altair Grid Engine, Son of Grid Engine): qsub, qstat, qacct, qdel, qhold, qrls.

Jobs that have not ended come from ``qstat -xml``, or from its table where a site's version has no XML. What has ended
is gone from there at once and comes from ``qacct``, which may lag behind and knows nothing of a job deleted while it
waited.

Sources: submit(1), qstat(1), sge_status(5) and accounting(5) of github.com/daimh/sge at 05d828f; the commands of 8.1.9
as they act; for ABCI 2.0 and TSUBAME 4.0 the sources named in their profiles.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence

from hpcjob.errors import SchedulerError
from hpcjob.schedulers import commands
from hpcjob.schedulers.base import Answer, JobRef, Mark, Report, ShellRequest, Submission, Submitted
from hpcjob.schedulers.command_scheduler import CommandScheduler, bare_id, livelier, the_one, whole_lines
from hpcjob.states import State

_TERSE_ID = re.compile(r"^(\d+)(?:\.\d+-\d+:\d+)?$", re.MULTILINE)
_SPOKEN_ID = re.compile(r"^Your job(?:-array)? (\d+)(?:\.[\d:,-]+)? \(", re.MULTILINE)
# job-ID prior name user state date time queue... slots tasks; a name is cut, and may hold blanks.
_ROW = re.compile(
    r"\s*(\d+)\s+\d+\.\d+\s+(.*\S)\s+(\S+)\s+([A-Za-z]+)\s+\d[\d/.-]{7,9}\s+\d\d:\d\d:\d\d(?:\.\d+)?(\s.*)?"
)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_GONE = re.compile(r"does not exist|not found|already in deletion|has (?:registered|deleted)", re.IGNORECASE)
_RECORD = re.compile(r"^=+\s*$", re.MULTILINE)
_UNCLEAR = r"got no message|failed receiving gdi|read error|timeout|timed out|connection reset|broken pipe"
_ZERO = re.compile(r"0(?:\.0+)?[A-Za-z]*")
_USAGE = ("ru_wallclock", "ru_minflt", "ru_maxrss")
_GIVEN_UP = "Grid Engine gave it up (qdel -f) without a word from its node, where processes of it may be left"
_NOTHING = "it printed nothing: there are no jobs, or it did not answer"
_H_RT, _KILLED, _RESCHEDULED = 37, 100, 25
_HINTS = {
    r"group|project|account": "choose another --account",
    r"unknown (?:queue|resource)|no suitable queue": "choose another --queue; `qstat -g c` and `qconf -sc` list them",
    r"h_rt|runtime|time limit": "change --walltime",
    r"object name": "choose another --name",
    r"unable to send message|connection refused|can't connect|commlib": "try again when Grid Engine answers",
    r"number of|quota|limit|exceed|point": "a limit of your group: fewer --nodes, or wait until other jobs have ended",
    r"unknown option|invalid option": "change the directives: hpcjob submit --dry-run shows them",
}


class GridEngineScheduler(CommandScheduler):
    """Grid Engine by its commands. All of the user's jobs are asked for at once."""

    type = "gridengine"
    unclear = _UNCLEAR
    hints = _HINTS
    restart_code = 99  # submit(1), EXIT STATUS of a job

    def command_line(self, submission: Submission) -> tuple[str, ...]:
        """``qsub -terse``, before it ``-g GROUP`` where sites take the group on the command line only; never ``-V``."""
        plan = submission.plan
        group = plan.account if plan.profile.scheduler.account == "-g-cli" else None
        return "qsub", *(("-g", group) if group else ()), "-terse", str(submission.script)

    def shell_command(self, request: ShellRequest) -> list[str]:
        """``qrsh`` with a terminal of its own for a command (``-pty yes``); the environment stays here."""
        options = request.without("-e", "-hold_jid", "-j", "-M", "-m", "-o", "-S", "-t", "-tc")
        group = ("-g", request.group) if request.group else ()
        return [*(request.command or ("qrsh",)), *group, *options, "-pty", "yes", str(request.shell)]

    def query_id(self, job: JobRef) -> str:
        """See `CommandScheduler.query_id`."""
        return job.array or job.id

    def parse_submit(self, stdout: str, stderr: str) -> Submitted | None:
        """Read ``ID`` or ``ID.1-10:1``, or the sentence of a wrapper that drops ``-terse``."""
        return the_one(_SPOKEN_ID.findall(f"{stdout}\n{stderr}") or bare_id(_TERSE_ID, stdout))

    def trouble(self, finished: commands.Finished) -> str | None:
        """A job that is gone is none, whatever the exit code."""
        lines = [line for line in (finished.stderr + finished.stdout).splitlines() if line.strip()]
        if finished.code != 0 and lines and all(_GONE.search(line) for line in lines):
            return None
        return super().trouble(finished)

    def queue_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """All jobs of this user: ``qstat -j`` tells no states."""
        return ["qstat", "-xml", "-u", commands.user_name()]

    def queue_forms(self, ids: Sequence[str], cluster: str | None) -> list[list[str]]:
        """The table, where there is no XML."""
        return [self.queue_command(ids, cluster), ["qstat", "-u", commands.user_name()]]

    def parse_queue(self, stdout: str) -> Answer:
        """Read XML or the table. The table of no jobs is empty, as is the word of a command that failed."""
        if not stdout.strip():
            return Answer(problem=_NOTHING)
        rows, problem = _xml_rows(stdout) if stdout.lstrip().startswith("<?xml") else _table_rows(stdout)
        reports: dict[str, Report] = {}
        for job_id, word, name, tasks in rows:
            report = _live_report(word, name)
            for element in (job_id, *_elements(job_id, tasks)):
                reports[element] = livelier(reports.get(element), report)
        return Answer(reports, problem)

    def history_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """``qacct -j`` takes one job; of more, all of this user's are asked for at once."""
        jobs = {job_id.partition("_")[0] for job_id in ids}
        return ["qacct", "-j", *jobs] if len(jobs) == 1 else ["qacct", "-o", commands.user_name(), "-j"]

    def parse_history(self, stdout: str) -> Answer:
        """Read accounting records; of several of a job the last one counts, for it may have been started anew."""
        reports: dict[str, Report] = {}
        if stdout.strip() and not _RECORD.search(stdout):
            return Answer(problem=f"not a list of jobs: {stdout[:80]!r}")
        for fields in _accounting(stdout):
            job_id, task = fields.get("jobnumber", ""), fields.get("taskid", "undefined")
            if job_id.isdigit() and "exit_status" in fields and "failed" in fields:
                reports[f"{job_id}_{task}" if task.isdigit() else job_id] = _past_report(fields)
        return Answer(reports)

    def lookup(self, mark: Mark) -> Submitted | None:
        """Ask for the user's jobs, then for all that is known of them: a script's path is its submission's alone."""
        answer = self._ask(self.queue_forms((), None), self.parse_queue)
        if answer.problem:
            raise SchedulerError(answer.problem)
        ids = sorted({job_id.partition("_")[0] for job_id in answer.reports}, key=int)
        if not ids:
            return None
        finished = commands.run(["qstat", "-j", ",".join(ids)], timeout_s=self.query_timeout_s)
        if finished.code != 0:
            raise SchedulerError(f"qstat: {finished.said}")
        return self.find(mark, finished)

    def lookup_command(self, mark: Mark) -> list[str]:
        """Not used: see `lookup`."""
        return ["qstat", "-j", "*"]

    def parse_lookup(self, stdout: str, mark: Mark) -> Submitted | None:
        """Find the record with our script, or with our job directory in the path of its output."""
        job_id = None
        for line in stdout.split("\n"):
            key, _, value = line.partition(":")
            if key == "job_number":
                job_id = value.strip()
            elif key in ("script_file", "stdout_path_list") and f"{mark.jobdir}/" in value and job_id:
                return Submitted(job_id)
        if job_id is None:
            raise SchedulerError(f"qstat: not a list of jobs: {stdout[:80]!r}")
        return None

    def cancel_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.cancel_command`."""
        return ["qdel", ",".join(_own_names(ids))]

    def hold_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.hold_command`."""
        return ["qhold", ",".join(_own_names(ids))]

    def release_command(self, ids: Sequence[str], cluster: str | None) -> list[str]:
        """See `CommandScheduler.release_command`."""
        return ["qrls", ",".join(_own_names(ids))]


_Row = tuple[str, str, str, str]  # id, letters of the state, name, tasks


def _own_names(ids: Sequence[str]) -> list[str]:
    """An array's element is ``5.3`` here."""
    return [job_id.replace("_", ".") for job_id in ids]


def _xml_rows(stdout: str) -> tuple[list[_Row], str | None]:
    try:
        tree = ET.fromstring(stdout)  # noqa: S314 - from the site's own qstat, and expat bounds what entities unfold to
    except ET.ParseError as error:
        return [], f"its XML is damaged: {error}"
    rows: list[_Row] = []
    for element in tree.iter("job_list"):
        job_id, word = element.findtext("JB_job_number"), element.findtext("state")
        if not job_id or not job_id.isdigit() or not word:
            return rows, "a job without number or state"
        rows.append((job_id, word, element.findtext("JB_name") or "", element.findtext("tasks") or ""))
    return rows, None


def _table_rows(stdout: str) -> tuple[list[_Row], str | None]:
    lines, problem = whole_lines(stdout)
    start = next((number for number, line in enumerate(lines) if line.split()[:2] == ["job-ID", "prior"]), None)
    if start is None:
        return [], f"not a list of jobs: {stdout[:80]!r}"
    rows: list[_Row] = []
    for line in lines[start + 1 :]:
        if not line.strip("- \t"):
            continue
        row = _ROW.fullmatch(line)
        if row is None:
            return rows, f"a row that is none of a list of jobs: {line[:80]!r}"
        words = (row[5] or "").split()
        while words and not words[0].isdigit():  # queue and job class, either of which may be blank
            del words[0]
        if not words:
            return rows, f"a row that was cut: {line[:80]!r}"
        rows.append((row[1], row[4], row[2], words[1] if len(words) > 1 else ""))
    return rows, problem


def _elements(job_id: str, tasks: str) -> Iterator[str]:
    """Yield the array elements that a row speaks for: ``3``, or ``1-9:2``, or several of these."""
    for part in tasks.split(","):
        if span := _RANGE.fullmatch(part.strip()):
            for number in range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1) or 1):
                yield f"{job_id}_{number}"


def _live_report(letters: str, name: str) -> Report:
    """Say what the letters of a state mean, as sge_status(5) combines them; ``E`` waits for somebody to act."""
    if letters.startswith("d"):
        return Report(State.COMPLETING, reason="being deleted", name=name)
    if "E" in letters:
        return Report(
            State.PENDING, reason=f"error state {letters}: it will not start; `qstat -j ID` says why", name=name
        )
    if "q" in letters:
        return Report(State.PENDING, reason="held" if "h" in letters else None, name=name)
    if re.search(r"[sSTN]", letters):
        return Report(State.SUSPENDED, name=name)
    if letters.strip("R") in ("r", "t"):
        return Report(State.RUNNING, name=name)
    return Report(State.UNKNOWN, reason=f"Grid Engine reports {letters!r}", name=name)


def _accounting(stdout: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each record; before the first and behind the last stand other tables."""
    for block in _RECORD.split("\n".join(whole_lines(stdout)[0]))[1:]:
        pairs = (line.partition(" ") for line in block.split("\n") if line.strip())
        yield {key: value.strip() for key, _, value in pairs}


def _past_report(fields: Mapping[str, str]) -> Report:
    """Say how a job ended, from ``failed`` ("37  : qmaster enforced ...") and ``exit_status`` ("137    (Killed)")."""
    name = fields.get("jobname")
    number, _, words = fields["failed"].partition(":")
    failed = int(number) if number.strip().isdigit() else -1
    status = fields["exit_status"].partition(" ")[0]
    code = int(status) if status.isdigit() else None
    if failed == 0 and code == 0 and _was_given_up(fields):
        return Report(State.FAILED, reason=_GIVEN_UP, name=name, unseen=True)
    if failed == 0 and code is not None:
        return Report(State.FAILED if code else State.COMPLETED, code, name=name)
    if failed == _H_RT:
        return Report(State.TIMEOUT, name=name)
    if failed == _KILLED and code:
        return Report(State.FAILED, code, f"killed by signal {code - 128}" if code > 128 else None, name)
    if failed == _RESCHEDULED:
        return Report(State.PENDING, reason="to be started again", name=name)
    return Report(State.FAILED, reason=f"Grid Engine: {words.strip() or fields['failed']}", name=name)


def _was_given_up(fields: Mapping[str, str]) -> bool:
    """Whether the master made up the record, as at ``qdel -f``: nothing starts without memory and page faults."""
    return all(_ZERO.fullmatch(fields.get(key, "")) for key in _USAGE)

"""``qsub``, ``qstat``, ``qdel``, ``qhold``, ``qrls``, ``qselect`` of OpenPBS 23.06, as a server was seen to act."""

from __future__ import annotations

import getopt
import getpass
import itertools
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.emulators.machine import Job, Machine, reply

HOST = "plogin1"
_QSUB_OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
_QUEUES = {"rt_HF", "rt_HG", "rt_HC", "regular-g", "interact-g", "workq"}
_LIMIT_S = 168 * 3600
_NAME = re.compile(r"[A-Za-z0-9._+-]{1,230}")
_VARIABLES = re.compile(r"[^'\"]*")
_LINE = 78
_SHOWN = ("name", "queue", "submit_dir", "output", "nodes", "select", "arguments", "project")


def main(machine: Machine, command: str, arguments: list[str]) -> int:
    """Act as ``command``; return its exit code."""
    if banner := machine.switch("banner"):
        print(banner)
    if machine.switch("hung"):
        time.sleep(600)
    if machine.switch("down"):
        name = {"qsub": "down_qsub", "qstat": "down_qstat"}.get(command, "down_qdel")
        sys.stderr.write(reply("pbs", name, server=machine.switch("server")))
        return 255 if command == "qstat" else 162
    return {"qsub": qsub, "qstat": qstat, "qdel": qdel, "qselect": qselect}.get(command, _hold_or_release(command))(
        machine, arguments
    )


def _refuse(code: int, name: str, **values: object) -> int:
    sys.stderr.write(reply("pbs", name, **values))
    return code


# --- qsub -----------------------------------------------------------------------------------------------------------


def qsub(machine: Machine, arguments: list[str]) -> int:
    """Queue a script; its directives count where the command line says nothing."""
    given, rest = getopt.getopt(arguments, _QSUB_OPTIONS)
    if ("-I", "") in given:
        return _interactive(machine, arguments, given)
    if len(rest) != 1 or not Path(rest[0]).is_file():
        return _refuse(1, "no_script")
    script = Path(rest[0]).read_text()
    options: list[tuple[str, str]] = []
    for line in _directives(script):
        try:
            found, left = getopt.getopt(shlex.split(line), _QSUB_OPTIONS)
        except (ValueError, getopt.GetoptError):
            return _refuse(1, "directive_error", line=line)
        if left:
            return _refuse(1, "directive_error", line=line)
        options += found
    one = dict(options) | dict(given)
    asked = dict(value.split("=", 1) for name, value in options + given if name == "-l")
    extra = dict(value.split("=", 1) for name, value in options + given if name == "-W")
    name = one.get("-N", Path(rest[0]).name)
    queue = one.get("-q", "workq")
    walltime_s = _seconds(asked.get("walltime", "1:00:00"))
    if not _NAME.fullmatch(name):
        return _refuse(2, "illegal_name")
    if queue not in _QUEUES:
        return _refuse(170, "unknown_queue")
    if walltime_s > _LIMIT_S:
        return _refuse(188, "limits")
    if machine.switch("needs_group") and "group_list" not in extra and "-P" not in one:
        return _refuse(32, "needs_group")
    tasks, limit = _tasks(one["-J"]) if "-J" in one else (None, None)
    if tasks is not None and len(tasks) < 2:
        return _refuse(2, "illegal_array")
    if tasks is not None and one.get("-r") == "n":
        return _refuse(1, "array_not_rerunnable")
    submit_dir, home = Path.cwd(), machine.folder / "home"
    home.mkdir(exist_ok=True)
    nodes = int(re.match(r"\d+", asked.get("select", "1"))[0])  # type: ignore[index]
    server = machine.switch("server")

    def complete(number: str, job: Job) -> None:
        task = number.partition("[")[2].rstrip("]")
        job["output"] = one.get("-o", f"{submit_dir}/{name}.o{number}").replace("^array_index^", task)
        job["environment"] = _environment(machine, f"{number}.{server}", job)
        if task:
            job["environment"]["PBS_ARRAY_INDEX"] = task

    number = machine.add(
        script,
        complete,
        tasks=tasks,
        limit=limit,
        after=_after(extra.get("depend", "")),
        held="-h" in one,
        name=name,
        queue=queue,
        project=one.get("-P", "_pbs_project_default"),
        walltime_s=walltime_s,
        select=asked.get("select", "1"),
        nodes=nodes,
        submit_dir=str(submit_dir),
        cwd=str(home),
        # Written in place with d among the letters of -k; else spooled, and copied when the job ends.
        live_output="d" in one.get("-k", ""),
        arguments=" ".join(arguments),
    )
    if machine.switch("lose_answer"):
        return _refuse(15031 & 255, "lost_answer")
    sys.stdout.write(reply("pbs", "submitted", seq=number if tasks is None else f"{number}[]", server=server))
    return 0


def _interactive(machine: Machine, arguments: list[str], given: list[tuple[str, str]]) -> int:
    """``qsub -I``: the shell of ``-S``, else the login shell, in the terminal of this command."""
    one = dict(given)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _refuse(1, "no_terminal")
    if "-J" in one or one.get("-q", "workq") not in _QUEUES:
        return _refuse(170, "unknown_queue")
    asked = dict(value.split("=", 1) for name, value in given if name == "-l")
    extra = dict(value.split("=", 1) for name, value in given if name == "-W")
    if machine.switch("needs_group") and "group_list" not in extra and "-P" not in one:
        return _refuse(32, "needs_group")
    submit_dir, home, server = Path.cwd(), machine.folder / "home", machine.switch("server")
    home.mkdir(exist_ok=True)

    def complete(number: str, job: Job) -> None:
        environment = _environment(machine, f"{number}.{server}", job)
        job["environment"] = {**environment, "PBS_ENVIRONMENT": "PBS_INTERACTIVE"}
        words = {"seq": number, "server": server}
        sys.stdout.write(reply("pbs", "interactive_waiting", **words) + reply("pbs", "interactive_ready", **words))
        sys.stdout.flush()

    number, _ = machine.attend_shell(
        [one.get("-S", "/bin/bash")],
        complete,
        name=one.get("-N", "STDIN"),
        queue=one.get("-q", "workq"),
        project=one.get("-P", "_pbs_project_default"),
        walltime_s=_seconds(asked.get("walltime", "1:00:00")),
        select=asked.get("select", "1"),
        nodes=int(re.match(r"\d+", asked.get("select", "1"))[0]),  # type: ignore[index]
        submit_dir=str(submit_dir),
        cwd=str(home),
        live_output=True,
        output=str(submit_dir / "none"),
        arguments=" ".join(arguments),
    )
    sys.stdout.write(reply("pbs", "interactive_completed", seq=number, server=server))
    return 0


def _tasks(text: str) -> tuple[list[int] | None, int | None]:
    """Return the elements of ``X-Y[:Z][%N]``, and how many may run at once; an empty list: that is none."""
    match = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?", text)
    if match is None:
        return [], None
    return list(range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))), int(match[4]) if match[4] else None


def _after(text: str) -> list[tuple[str, str]]:
    """Return the conditions of ``afterok:ID:ID,afterany:ID``, with the numbers of the jobs."""
    found = []
    for part in filter(None, text.split(",")):
        condition, *ids = part.split(":")
        found += [(condition, job_id.partition(".")[0].removesuffix("[]")) for job_id in ids]
    return found


def _directives(script: str) -> Iterator[str]:
    """Yield the directives, up to the first line that is neither blank nor a comment."""
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#PBS"):
            yield line[4:].strip()


def _environment(machine: Machine, job_id: str, job: Job) -> dict[str, str]:
    nodefile = machine.folder / f"{job_id}.nodes"
    nodefile.write_text("".join(f"{name}\n" for name in _granted(job["select"])))
    return {
        "HOME": job["cwd"],
        "LOGNAME": getpass.getuser(),
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBID": job_id,
        "PBS_JOBNAME": job["name"],
        "PBS_NODEFILE": str(nodefile),
        "PBS_O_HOST": HOST,
        "PBS_O_WORKDIR": job["submit_dir"],
        "PBS_QUEUE": job["queue"],
    }


def _granted(select: str) -> Iterator[str]:
    """Yield the lines of the file of nodes, ``mpiprocs`` of each chunk; the script runs on the first, this machine."""
    names = itertools.chain([os.uname().nodename], (f"hnode{number:03}" for number in itertools.count(2)))
    for part in select.split("+"):
        chunks = re.match(r"\d+", part)
        processes = re.search(r":mpiprocs=(\d+)", part)
        for name in itertools.islice(names, int(chunks[0]) if chunks else 1):
            yield from itertools.repeat(name, int(processes[1]) if processes else 1)


def _seconds(text: str) -> int:
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


# --- qstat ----------------------------------------------------------------------------------------------------------


def qstat(machine: Machine, arguments: list[str]) -> int:
    """List jobs in full (``-f``); those that have ended only with ``-x`` or ``-H``; or queues, or the server."""
    if (about := _about(machine, arguments)) is not None:
        return about
    if machine.switch("site") == "miyabi":
        given, ids = getopt.gnu_getopt(arguments, "ftxuHqQl", ["hday=", "hnum="])
        refused = next((name for name, _ in given if name in ("-x", "-u", "-q", "-Q")), None)
        if refused:
            return _refuse(2, "miyabi_no_option", option=refused[1:])
        sys.stdout.write(reply("pbs", "table_miyabi").partition("\n")[0] + "\n\n")
    else:
        given, ids = getopt.getopt(arguments, "fF:D:xHtwJpu:ansTQqB1")
    options = dict(given)
    past = "-x" in options or "-H" in options
    known = machine.snapshot()
    server = machine.switch("server")
    code = 0
    shown: dict[str, Job] = {}
    every = [f"{_shown(number, job)}.{server}" for number, job in known.items() if "array" not in job]
    parts = {job["array"]: [] for job in known.values() if "array" in job}  # type: dict[str, list[str]]
    for number, job in known.items():
        if "array" in job:
            parts[job["array"]].append(number)
    wanted = [
        part
        for job_id in ids or every
        for number in [_number(job_id.partition(".")[0], known)]
        for part in [number, *(parts.get(number, []) if "-t" in options else [])]
    ]
    for number in wanted:
        job = known.get(number)
        if job is None or (_has_ended(known, number) and not machine.switch("history")):
            code = _refuse(153, "unknown_job", command="qstat", id=f"{number}.{server}") if ids else code
        elif _has_ended(known, number) and not past:
            code = _refuse(35, "finished_qstat", id=f"{_shown(number, job)}.{server}") if ids else code
        else:
            shown[number] = job
    text = "".join(full(_shown(number, job), _as_told(known, number), server) for number, job in shown.items())
    cut = machine.switch("cut")
    sys.stdout.write(text if cut is None else text[:cut])
    return code


def _about(machine: Machine, arguments: list[str]) -> int | None:
    """Answer what is asked of the server and its queues; None: it is about jobs."""
    miyabi = machine.switch("site") == "miyabi"
    names = {"--version": "version", "-Qf": "queues", "-Bf": "server"}
    if len(arguments) == 1 and arguments[0] in names and not miyabi:
        sys.stdout.write(reply("pbs", names[arguments[0]], server=machine.switch("server")))
        return 0
    if arguments[:1] == ["--rsc"] and miyabi:
        sys.stdout.write(reply("pbs", "miyabi_rsc"))
        return 0
    unknown = next(
        (word for word in arguments if word.startswith("--") and not word.startswith(("--hday", "--hnum"))), None
    )
    return _refuse(2, "miyabi_no_option", option=unknown.lstrip("-")) if unknown else None


def _number(text: str, known: Mapping[str, Job]) -> str:
    """Return the number of a job as it is kept; an array is asked for with its brackets, else it is unknown."""
    bare = text.removesuffix("[]")
    return bare if (known.get(bare, {}).get("state") == "array") == text.endswith("[]") else f"{text}?"


def _shown(number: str, job: Job) -> str:
    return f"{number}[]" if job["state"] == "array" else number


def _has_ended(known: Mapping[str, Job], number: str) -> bool:
    """Whether a job is history; the elements of an array become that together."""
    array = known[number].get("array", number) if number in known else number
    parts = [job for name, job in known.items() if array in (name, job.get("array")) and job["state"] != "array"]
    return bool(parts) and all(job["state"] == "ended" for job in parts)


def _as_told(known: Mapping[str, Job], number: str) -> Job:
    """Return a job as it is told of: an array is B once an element has begun, an ended element X until all have."""
    job = dict(known[number])
    if job["state"] == "array":
        parts = [one for one in known.values() if one.get("array") == number]
        if _has_ended(known, number):
            last = max(parts, key=lambda one: float(one["ended"]))
            job.update(
                {key: last[key] for key in ("code", "deleted", "over_walltime", "started", "ended") if key in last}
            )
            job["state"], job["failed"] = "ended", any(one.get("code", 1) for one in parts)
        else:
            job["state"] = "begun" if any(one["state"] != "queued" for one in parts) else "queued"
    elif "array" in job and job["state"] == "ended" and not _has_ended(known, number):
        job["letter"] = "X"
    return job


def full(number: str, job: Job, server: str = "pbs1") -> str:
    """Return a job as ``qstat -f`` prints it: long values go on behind a tab."""
    lines = "".join(f"    {_wrapped(line)}\n" for line in _attributes(number, job, server))
    return f"Job Id: {number}.{server}\n{lines}\n"


def _wrapped(line: str) -> str:
    """Break a line as OpenPBS does: at a comma if a piece is short enough, else anywhere."""
    out, width = "", 4
    for piece in re.findall(r"[^,]*,|[^,]+$", line):
        rest = piece
        if width + len(rest) >= _LINE and out:
            out, width = f"{out}\n\t", 8
        while len(rest) > _LINE:
            out, rest, width = f"{out}{rest[:_LINE]}\n\t", rest[_LINE:], 8
        out, width = out + rest, width + len(rest)
    return out


def _attributes(number: str, job: Job, server: str) -> list[str]:
    state, substate, exit_status, comment = _state(job)
    state = job.get("letter", state)
    values = {
        "seq": number,
        "server": server,
        "host": HOST,
        "user": getpass.getuser(),
        "home": job["cwd"],
        "state": state,
        "substate": substate,
        "exit_status": exit_status,
        "comment": comment,
        "ctime": _date(job["created"]),
        "stime": _date(job["started"]) if "started" in job else None,
        "history": int(job["ended"]) if "ended" in job else None,
        "stageout": None if job["live_output"] or exit_status is None else int(Path(job["output"]).exists()),
        "hold": "u" if state == "H" else "n",
        "used": "00:00:00",
        "ncpus": 96 * job["nodes"],
        "walltime": time.strftime("%H:%M:%S", time.gmtime(job["walltime_s"])),
        **{
            key: job[key]
            for key in ("name", "queue", "submit_dir", "output", "nodes", "select", "arguments", "project")
        },
    }
    absent = {f"@{key}@" for key, value in values.items() if value is None}
    lines = reply("pbs", "record", **{key: value for key, value in values.items() if value is not None}).splitlines()
    return [line for line in lines if not any(key in line for key in absent)]


def _state(job: Job) -> tuple[str, int, int | None, str | None]:
    """Return state, substate, exit status and comment."""
    if job["state"] == "held":
        return "H", 20, None, None
    if job["state"] == "queued" and job.get("after"):
        return "H", 22, None, None
    if job["state"] == "queued":
        return "Q", 10, None, reply("pbs", "comment_waiting").strip()
    at = time.strftime("%a %b %d at %H:%M", time.gmtime(job.get("started", 0)))
    ran = reply("pbs", "comment_running", at=at).strip()
    if job["state"] == "begun":
        return "B", 70, None, None
    if job["state"] in ("running", "starting"):
        return "R", 42, None, ran
    if "code" not in job:
        return "F", 91 if job.get("deleted") else 92, None, None
    code: int = 128 - job["code"] if job["code"] < 0 else job["code"]
    if job.get("deleted"):
        return "F", 91, job.get("status_when_deleted", 271), f"{ran} and terminated"
    if job.get("over_walltime"):
        return "F", 93, -29, f"{ran} and exceeded resource walltime"
    if job.get("failed"):  # an array's exit status is that of the element that ended last
        return "F", 93, code, f"{ran} and failed"
    return ("F", 93, code, f"{ran} and failed") if code else ("F", 92, 0, f"{ran} and finished")


def _date(seconds: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(seconds))


# --- the others -----------------------------------------------------------------------------------------------------


def qdel(machine: Machine, arguments: list[str]) -> int:
    """Delete jobs; those that it cannot are named, the others go."""
    _, ids = getopt.getopt(arguments, "xW:")
    code = 0
    for job_id in ids:
        known = machine.snapshot()
        number = _number(job_id.partition(".")[0], known)
        if number not in known or (known[number]["state"] == "ended" and not machine.switch("history")):
            code = _refuse(153, "unknown_job", command="qdel", id=job_id)
        elif machine.delete(number) == "ended":
            code = _refuse(35, "finished_qdel", id=job_id)
    return code


def _hold_or_release(command: str) -> Callable[[Machine, list[str]], int]:
    def act(machine: Machine, arguments: list[str]) -> int:
        _, ids = getopt.getopt(arguments, "h:")
        code = 0
        for job_id in ids:
            with machine.jobs() as jobs:
                job = jobs.get(job_id.partition(".")[0])
                if job is None:
                    code = _refuse(153, "unknown_job", command=command, id=job_id)
                elif job["state"] == "ended":
                    code = _refuse(35, "finished_qhold", command=command)
                elif command == "qhold" and job["state"] == "queued":
                    job["state"] = "held"
                elif command == "qrls" and job["state"] == "held":
                    job["state"] = "queued"
        return code

    return act


def qselect(machine: Machine, arguments: list[str]) -> int:
    """Print the ids of jobs, with ``-x`` those that have ended too."""
    options = dict(getopt.getopt(arguments, "N:u:xs:q:")[0])
    known = machine.snapshot()
    for number, job in known.items():
        ended = _has_ended(known, number)
        if "array" in job or (ended and not ("-x" in options and machine.switch("history"))):
            continue
        if options.get("-N") in (None, job["name"]):
            print(f"{_shown(number, job)}.{machine.switch('server')}")
    return 0

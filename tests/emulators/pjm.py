"""``pjsub``, ``pjstat``, ``pjdel``, ``pjhold`` and ``pjrls`` of Fujitsu's job operation software ("PJM").

Written from the public manuals and from programs that drive it (see README); nobody ran these against the real ones.
"""

from __future__ import annotations

import getopt
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.emulators.machine import Job, Machine, reply

_PJSUB_OPTIONS = "g:jL:N:o:e:sSx:XwzM:m:p:P:"
_PJSUB_LONG = [
    "mpi=",
    "norestart",
    "restart",
    "omp=",
    "name=",
    "at=",
    "step",
    "bulk",
    "sparam=",
    "fs=",
    "hold",
    "interact",
]
_RSCGRPS = {"regular-a", "short-a", "debug-a", "interactive-a", "small"}
_OVER_ELAPSE = 11
# Word of st, and of the site's STATUS, for a job that has not ended.
_STATES = {
    "starting": ("RNA", "QUEUED"),
    "queued": ("QUE", "QUEUED"),
    "held": ("HLD", "HOLD"),
    "running": ("RUN", "RUNNING"),
}


def main(machine: Machine, command: str, arguments: list[str]) -> int:
    """Act as ``command``; return its exit code."""
    if banner := machine.switch("banner"):
        print(banner)
    if machine.switch("hung"):
        time.sleep(600)
    if machine.switch("down"):
        return _refuse("down", command=command)
    acts = {"pjsub": pjsub, "pjstat": pjstat}
    return acts[command](machine, arguments) if command in acts else _act_on(machine, command, arguments)


def _refuse(name: str, **values: object) -> int:
    sys.stderr.write(reply("pjm", name, **values))
    return 1


def pjsub(machine: Machine, arguments: list[str]) -> int:
    """Queue a script; it starts in the folder it was submitted from."""
    given, rest = getopt.getopt(arguments, _PJSUB_OPTIONS, _PJSUB_LONG)
    if ("--interact", "") in given:
        return _interactive(machine, given)
    (path,) = rest
    script = Path(path).read_text()
    options = [*_directives(script), *given]
    one = dict(options)
    limits = dict(part.split("=", 1) for name, value in options if name == "-L" for part in value.split(","))
    if machine.switch("needs_group") and "-g" not in one:
        return _refuse("refused_group")
    queue = limits.get("rscgrp", "small")
    if queue not in _RSCGRPS:
        return _refuse("refused_rscgrp", queue=queue)
    name = one.get("-N", Path(path).name)
    parameters = dict(part.split("=", 1) for part in one.get("--sparam", "").split(",") if "=" in part)
    tasks = None
    if "--bulk" in one:
        if "--step" in one:
            return _refuse("bulk_and_step")
        first, last = map(int, one["--sparam"].split("-"))
        tasks = list(range(first, last + 1))
    step_of = parameters.get("jid")
    steps = {number: job for number, job in machine.snapshot().items() if number.startswith(f"{step_of}_")}
    if step_of and all(job["state"] == "ended" for job in steps.values()):
        return _refuse("no_job", command="pjsub", id=step_of)
    hours, minutes, seconds = (int(part) for part in limits.get("elapse", "0:10:00").split(":"))
    nodes = int(limits.get("node", "1"))

    def complete(number: str, job: Job) -> None:
        nodefile = machine.folder / f"{number}.nodes"
        nodefile.write_text(_granted(nodes))
        bare, _, task = number.rstrip("]").partition("[")
        output = one.get("-o", "%n.%j.out").replace("%j", number).replace("%n", name)
        job["output"] = str(Path.cwd() / output)
        job["environment"] = {
            "PJM_ENVIRONMENT": "BATCH",
            "PJM_JOBID": bare.partition("_")[0],
            "PJM_SUBJOBID": number,
            "PJM_JOBNAME": name,
            "PJM_O_NODEINF": str(nodefile),
            "PJM_O_WORKDIR": job["submit_dir"],
        }
        if task:
            job["environment"]["PJM_BULKNUM"] = task

    number = machine.add(
        script,
        complete,
        tasks=tasks,
        step_of=step_of,
        is_step="--step" in one,
        after=[("afterany", number) for number in list(steps)[-1:]],  # the steps of a step job run in their order
        held="--hold" in one,
        name=name,
        queue=queue,
        walltime_s=3600 * hours + 60 * minutes + seconds,
        nodes=nodes,
        submit_dir=str(Path.cwd()),
        cwd=str(Path.cwd()),
        live_output=False,
    )
    if machine.switch("lose_answer"):
        return _refuse("no_answer")
    sys.stdout.write(reply("pjm", machine.switch("submitted") or "submitted", id=number))
    return 0


def _granted(nodes: int) -> str:
    """Return the text of the file of nodes: addresses, first that of this machine, where the script runs."""
    return "".join(f"{address}\n" for address in ["127.0.0.1", *(f"10.1.0.{host}" for host in range(2, nodes + 1))])


def _interactive(machine: Machine, given: list[tuple[str, str]]) -> int:
    """``pjsub --interact``: a login shell in the terminal of this command, with the variables of ``-x``."""
    one = dict(given)
    limits = dict(part.split("=", 1) for name, value in given if name == "-L" for part in value.split(","))
    if machine.switch("needs_group") and "-g" not in one:
        return _refuse("refused_group")
    queue, nodes = limits.get("rscgrp", "small"), int(limits.get("node", "1"))
    if queue not in _RSCGRPS:
        return _refuse("refused_rscgrp", queue=queue)
    home = machine.folder / "home"
    home.mkdir(exist_ok=True)

    def complete(number: str, job: Job) -> None:
        nodefile = machine.folder / f"{number}.nodes"
        nodefile.write_text(_granted(nodes))
        job["environment"] = {
            "HOME": str(home),
            "PJM_ENVIRONMENT": "INTERACT",
            "PJM_JOBID": number,
            "PJM_JOBNAME": one.get("-N", "STDIN"),
            "PJM_O_NODEINF": str(nodefile),
            "PJM_O_WORKDIR": job["submit_dir"],
            **dict(part.split("=", 1) for part in one["-x"].split(",")),
        }
        sys.stdout.write(reply("pjm", "submitted", id=number) + reply("pjm", "interactive_started", id=number))
        sys.stdout.flush()

    number, _ = machine.attend_shell(
        ["bash", "-l"],
        complete,
        name=one.get("-N", "STDIN"),
        queue=queue,
        walltime_s=0,
        nodes=nodes,
        submit_dir=str(Path.cwd()),
        cwd=str(Path.cwd()),
        live_output=True,
        output=str(Path.cwd() / "none"),
    )
    sys.stdout.write(reply("pjm", "interactive_completed", id=number))
    return 0


def _directives(script: str) -> Iterator[tuple[str, str]]:
    for line in script.splitlines():
        if line.startswith("#PJM"):
            yield from getopt.getopt(line[4:].split(), _PJSUB_OPTIONS, _PJSUB_LONG)[0]


# --- pjstat ---------------------------------------------------------------------------------------------------------


def pjstat(machine: Machine, arguments: list[str]) -> int:
    """List jobs: those that have not ended, or with ``-H`` those that have; or the resource groups (``--rsc``)."""
    if "--rsc" in arguments:
        sys.stdout.write(reply("pjm", "rsc"))
        return 0
    if machine.switch("site") == "wisteria":
        return _wisteria(machine, arguments)
    past, choose, ids, data, elements = False, "jid,jnam,st", [], False, False
    words = iter(arguments)
    for word in words:
        if word == "-H" or word.startswith("-H"):
            past = True
            if word == "-H":
                following = next(words)
                assert following.startswith("day="), following
        elif word == "--data":
            data = True
        elif word == "-E":
            elements = True
        elif word.startswith("--choose="):
            choose = word.partition("=")[2]
        elif not word.startswith("-"):
            ids.append(word)
    known = machine.snapshot()
    lines, code = [f"H,{','.join(column.upper() for column in map(_title, choose.split(',')))}"], 0
    for number in ids or known:
        job = known.get(number)
        if job is not None and job["state"] == "array":
            job = _bulk(known, number)
        if job is not None and "array" in job and not elements:
            continue
        if job is None or (past and not machine.switch("history")):
            code = _refuse("no_job", command="pjstat", id=number) if ids else code
        elif (job["state"] == "ended") == past:
            lines.append("," + ",".join(_field(number, job, column) for column in choose.split(",")))
        elif ids:
            code = _refuse("no_job", command="pjstat", id=number)
    text = "".join(f"{line}\n" for line in lines) if data else reply("pjm", "native_header")
    cut = machine.switch("cut")
    sys.stdout.write(text if cut is None else text[:cut])
    return code


def _bulk(known: dict[str, Job], number: str) -> Job:
    """Return the bulk job itself: it runs while an element does, and has no end code of its own."""
    parts = [job for job in known.values() if job.get("array") == number]
    ended = all(job["state"] == "ended" for job in parts)
    waiting = all(job["state"] == "queued" for job in parts)
    deleted = ended and any(job.get("deleted") for job in parts)
    return {**known[number], "state": "ended" if ended else "queued" if waiting else "running", "deleted": deleted}


def _title(column: str) -> str:
    return {"jid": "JOB_ID", "jnam": "JOB_NAME", "st": "ST", "ec": "EC", "sn": "SN", "pc": "PC", "std": "STD"}[column]


def _field(number: str, job: Job, column: str) -> str:
    code, signal, pjm = _end(job)
    fields: dict[str, str] = {
        "jid": number,
        "jnam": job["name"],
        "st": _STATES[job["state"]][0] if job["state"] in _STATES else "CCL" if job.get("deleted") else "EXT",
        "ec": code,
        "sn": signal,
        "pc": pjm,
        "std": job["output"],
    }
    return fields[column]


def _end(job: Job) -> tuple[str, str, str]:
    """Return end code, signal and PJM's own code; ``-`` of a job that never ran."""
    if "code" not in job:
        return "-", "-", "1" if job.get("deleted") else "-"
    own = "1" if job.get("deleted") else str(_OVER_ELAPSE) if job["over_walltime"] else "0"
    return str(max(job["code"], 0)), str(max(-job["code"], 0)), own


def _wisteria(machine: Machine, arguments: list[str]) -> int:
    """The site's own command: a banner, other columns, and none of the options for programs."""
    refused = next((word for word in arguments if word != "-H" and word.startswith("-")), None)
    if refused:
        return _refuse("wisteria_no_option", option=refused)
    past = "-H" in arguments
    text = reply("pjm", "wisteria_header")
    for number, job in machine.snapshot().items():
        ended = job["state"] == "ended"
        if ended == past and (not ended or machine.switch("history")):
            row = "ended" if ended or job["state"] == "held" else job["state"]
            word = "HOLD" if not ended else "CANCEL" if job.get("deleted") else "END"
            text += reply("pjm", f"wisteria_row_{row}", id=number, name10=f"{job['name'][:10]:10}", word=f"{word:7}")
    cut = machine.switch("cut")
    sys.stdout.write(text if cut is None else text[:cut])
    return 0


# --- the others -----------------------------------------------------------------------------------------------------


def _act_on(machine: Machine, command: str, ids: list[str]) -> int:
    """pjdel, pjhold, pjrls."""
    code = 0
    for number in ids:
        job = machine.snapshot().get(number)
        if job is None:
            code = _refuse("no_job", command=command, id=number)
        elif job["state"] == "ended":
            code = _refuse("ended_job", command=command, id=number)
        else:
            if command == "pjdel":
                machine.delete(number)
            else:
                with machine.jobs() as jobs:
                    before, after = ("queued", "held") if command == "pjhold" else ("held", "queued")
                    if jobs[number]["state"] == before:
                        jobs[number]["state"] = after
            sys.stdout.write(reply("pjm", "done", command=command, id=number))
    return code

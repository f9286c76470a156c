"""What an executor can be asked for: submitit's shared parameters, and keys of a job file behind a prefix."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document
from hpcjob.errors import InputError
from hpcjob.job import JobFile
from hpcjob.plugins.words import in_parameters
from hpcjob.profile import SchedulerName
from hpcjob.schedulers.directives import require
from hpcjob.units import format_clock, parse_walltime_s
from neoxlite.common.near import near

# submitit's shared names -> keys of a job file.
_SHARED = {
    "name": "name",
    "timeout_min": "walltime",
    "mem_gb": "memory",
    "nodes": "nodes",
    "tasks_per_node": "procs_per_node",
    "gpus_per_node": "gpus_per_node",
    "cpus_per_task": "cpus_per_gpu",
}
# Keys of a job file under their own names.
_KEYS = (
    *("queue", "account", "walltime", "qos", "reservation", "constraint", "exclude", "nodelist", "exclusive", "extra"),
    *("python", "modules", "module_use", "source", "env", "launcher", "limits", "bind"),
    *("mail", "mail_to", "array_limit", "after", "stop_before_s"),
)
OWN = ("profile", *_KEYS)
STDERR = "stderr_to_stdout"
DEFAULTS: Mapping[str, Any] = {"name": "submitit", "nodes": 1, "tasks_per_node": 1, "gpus_per_node": 0}


class UnknownParameterError(InputError, NameError):
    """No parameter of that name; a NameError, as submitit's own."""


class PrefixedNames(frozenset[str]):
    """Names of parameters that are taken behind the executor's prefix only.

    submitit iterates over the names of every plugin to make unprefixed aliases of them, the last plugin's winning: with
    plain names ``queue`` or ``account`` meant for one executor would become another's, and vanish. So these are not to
    be iterated over. An unknown name ends here, for submitit would list none of the known ones.
    """

    prefix: str

    @classmethod
    def of(cls, prefix: str) -> PrefixedNames:
        """Return the names for the executor called ``prefix``."""
        names = cls(OWN)
        names.prefix = prefix
        return names

    def __iter__(self) -> Iterator[str]:
        """Yield nothing."""
        return iter(())

    def __contains__(self, name: object) -> bool:
        """Return whether it is a name of these. Raises UnknownParameterError if it is not, nor a shared one."""
        if name in _SHARED or name == STDERR:
            return False
        check_name(self.prefix, str(name))
        return True


def check_name(prefix: str, name: str) -> None:
    """Raise UnknownParameterError if there is no parameter of that name; near names are offered."""
    if name in OWN or name in _SHARED or name == STDERR:
        return
    alike = near(name, OWN)
    offered = " or ".join(f"{prefix}_{one}" for one in alike) if alike else ", ".join(f"{prefix}_{one}" for one in OWN)
    raise UnknownParameterError(
        f"{prefix}_{name}: no such parameter", hint=f"did you mean {offered}?" if alike else f"there are {offered}"
    )


def names_of_keys(prefix: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return for each key of a job file the parameter that sets it: of a walltime the one that is given."""
    names = {key: f"{prefix}_{key}" for key in OWN}
    names.update({key: name for name, key in _SHARED.items() if name != "timeout_min"})
    if parameters.get("walltime") is None:
        names["walltime"] = "timeout_min"
    return names


def to_job(prefix: str, parameters: Mapping[str, Any], **keys: Any) -> JobFile:
    """Return the job that ``parameters`` describe; those that are None are as if not given.

    Args:
        prefix: name of the executor, for errors.
        parameters: under submitit's shared names and those of `OWN`.
        keys: more keys of the job file.

    Raises:
        InputError: a value is of the wrong kind; the message names the parameter.
    """
    document = Document({}, origin="parameters")
    given = {name: value for name, value in parameters.items() if value is not None}
    for name, value in {**DEFAULTS, **given}.items():
        check_name(prefix, name)
        key = _SHARED.get(name, name)
        if name in ("profile", STDERR) or (name == "timeout_min" and "walltime" in given):
            continue
        place = name if name in _SHARED else f"{prefix}_{name}"
        document.set((key,), _in_job_file(name, value, place), place)
    if document.data.get("env"):
        document.keep_text(("env",))
    for key, value in keys.items():
        document.set((key,), value, "parameters")
    with in_parameters(names_of_keys(prefix, parameters)):
        return convert(document, JobFile, "job")


def _in_job_file(name: str, value: Any, place: str) -> Any:
    """Return a value as a job file has it, and not the caller's own: minutes become a clock time, GB get their unit."""
    if name == "timeout_min":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise InputError(f"{place}: {value!r} is not a number of minutes", hint="give one above 0")
        return format_clock(max(1, round(value * 60)))
    if name == "mem_gb" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value}G"
    if name == "walltime" and isinstance(value, str):
        parse_walltime_s(value, place)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def without_memory(job: JobFile, scheduler: SchedulerName) -> JobFile:
    """Return ``job``; where its scheduler cannot be asked for memory without that, with a warning.

    ``mem_gb`` is one of submitit's shared parameters: a script that gives it is to run on every cluster.
    """
    if job.memory is None:
        return job
    try:
        require(scheduler, "memory")
    except InputError:
        warnings.warn(f"mem_gb: {scheduler} cannot be asked for memory; a job gets what its nodes or its queue give")
        return msgspec.structs.replace(job, memory=None)
    return job

"""What each scheduler takes as the value of a directive: one table, one row a key.

Directives are not shell: quotes, backslashes, ``#`` and ``$`` mean something else in each scheduler, and a value that
does not fit is cut or ignored there without a word. So a value is checked here, and refused with its key's name.

Sources: sbatch(1) and ``src/sbatch/opt.c`` of Slurm 22.05 (double quotes, backslash, ``%`` in file names); qsub(1B) of
OpenPBS 23.06 and its behaviour (quotes are removed, nothing is expanded, a trailing comment is an error); submit(1) and
sge_types(5) of Grid Engine 8.1.9; the manual of Fujitsu's job operation software (names of at most 63 bytes).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcjob.errors import InputError
from hpcjob.profile import SchedulerName
from hpcjob.quoting import ScriptText, check_text, shorten


@dataclass(frozen=True)
class Rule:
    """What the value of one key may be.

    Attributes:
        pattern: the whole value matches this regular expression, which is compiled on use.
        takes: the same for people.
        quoted: put into double quotes unless the value is plain.
        percent: ``%`` begins a pattern of the scheduler and is doubled.
    """

    pattern: str
    takes: str
    quoted: bool = False
    percent: bool = False


_PLAIN = re.compile(r"[A-Za-z0-9_.,:@%+=/^-]+")
_WORD = r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,127}"
_WORD_TAKES = "letters, digits and . _ + - @, a letter or digit first"
_RAW = Rule(r"-[^\n]*", "one line that begins with -, as in the script but without the prefix")
_CLOCK = Rule(r"\d{2,5}:\d\d:\d\d", "HH:MM:SS")
_RESERVATION = Rule(_WORD, _WORD_TAKES)
_MEMORY = Rule(r"\d+", "a number of MiB")
_PATH = r"[^\"\\]+"
_HOSTS = Rule(r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]*", "host names such as node[1-3,7]")
_ARRAY = Rule(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*", "indices such as 0-9 or 1,3,7")
_AFTER = Rule(r"[A-Za-z0-9:,._+\[\]-]+", "conditions such as afterok:123")
_MAIL = Rule(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+", "one address")
_MAIL_TYPE = Rule(r"[A-Za-z,]+", "begin, end, fail")
_YES = Rule(r"True|False", "true or false")

# Of a job's name: what is replaced by _, what it begins with, how long it is at most.
_NAMES: Mapping[SchedulerName, tuple[str, str, int]] = {
    "slurm": (r"[\"'\\]", r".", 200),
    "pbs": (r"[^A-Za-z0-9._+-]", r"[A-Za-z0-9_]", 200),
    "gridengine": (r"[^A-Za-z0-9._+-]", r"[A-Za-z_]", 200),
    "pjm": (r"[^A-Za-z0-9._-]", r"[A-Za-z0-9_]", 63),
    "local": (r"[\x00-\x1f]", r".", 200),
}

_COMMON: Mapping[str, Rule] = {
    "account": Rule(_WORD, _WORD_TAKES),
    "queue": Rule(_WORD, _WORD_TAKES),
    "extra": _RAW,
    "walltime": _CLOCK,
}

_RULES: Mapping[SchedulerName, Mapping[str, Rule]] = {
    "slurm": {
        **_COMMON,
        "name": Rule(r"[^\"'\\/]{1,200}", "at most 200 characters without quotes, \\ and /", quoted=True),
        "queue": Rule(rf"{_WORD}(,{_WORD})*", "names of partitions, separated by commas"),
        "reservation": _RESERVATION,
        "memory": _MEMORY,
        "exclude": _HOSTS,
        "nodelist": _HOSTS,
        "constraint": Rule(r"[A-Za-z0-9][A-Za-z0-9._+&|*,()\[\]-]*", "features such as a100&nvlink", quoted=True),
        "qos": Rule(_WORD, _WORD_TAKES),
        "exclusive": _YES,
        "array": _ARRAY,
        "after": _AFTER,
        "mail": _MAIL,
        "mail_type": _MAIL_TYPE,
        "jobdir": Rule(_PATH, 'no " and no \\', quoted=True, percent=True),
    },
    "pbs": {
        **_COMMON,
        "name": Rule(
            r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}",
            "letters, digits and . _ + -, a letter, digit or _ first, at most 200",
        ),
        "reservation": _RESERVATION,
        "exclusive": _YES,
        "array": _ARRAY,
        "after": _AFTER,
        "mail": _MAIL,
        "mail_type": _MAIL_TYPE,
        "memory": _MEMORY,
        "select": Rule(r"\d+(:[a-z_]+=[A-Za-z0-9_.]+)*", "N:resource=value:... without blanks"),
        "variables": Rule(
            r"[A-Za-z_]\w*(=[^\s\"'\\,]*)?(,[A-Za-z_]\w*(=[^\s\"'\\,]*)?)*", "NAME=value,... of plain text"
        ),
        "jobdir": Rule(_PATH, 'no " and no \\', quoted=True),
    },
    "gridengine": {
        **_COMMON,
        "name": Rule(
            r"[A-Za-z_][A-Za-z0-9._+-]{0,199}", "letters, digits and . _ + -, a letter or _ first, at most 200"
        ),
        "reservation": _RESERVATION,
        "exclusive": _YES,
        "array": _ARRAY,
        "after": _AFTER,
        "mail": _MAIL,
        "mail_type": _MAIL_TYPE,
        "jobdir": Rule(r"[^\s\"'\\$:*?]+", "no blanks, quotes, and none of \\ $ : * ?"),
    },
    "pjm": {
        **_COMMON,
        "name": Rule(
            r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}", "letters, digits and . _ -, a letter, digit or _ first, at most 63"
        ),
        "array": _ARRAY,
        "mail": _MAIL,
        "mail_type": _MAIL_TYPE,
        "jobdir": Rule(r"[^\s\"'\\$%]+", "no blanks, quotes, and none of \\ $ %"),
    },
    "local": {
        **_COMMON,
        "name": Rule(r"[^/]{1,200}", "at most 200 characters without /"),
        "memory": _MEMORY,
    },
}


def require(scheduler: SchedulerName, key: str) -> Rule:
    """Return the rule for ``key``. Raises InputError where the scheduler cannot be asked for the like."""
    rule = _RULES[scheduler].get(key)
    if rule is None:
        raise InputError(f"{key}: {scheduler} does not support this", hint=f"remove {key} from the job")
    return rule


def directive(scheduler: SchedulerName, value: str | int, key: str) -> ScriptText:
    """Return ``value`` as it stands in a directive line of ``scheduler``.

    Args:
        key: the key of the job file or profile, as in the table.

    Raises:
        InputError: the scheduler cannot take the value; the message names ``key`` and what it takes.
    """
    rule = require(scheduler, key)
    text = str(value)
    check_text(text, key)
    if key == "name" and _fits_folder(text):
        text = fitted_name(scheduler, text)
    if not re.fullmatch(rule.pattern, text) or (key == "name" and not _fits_folder(text)):
        takes = _FOLDERS if key == "name" and not _fits_folder(str(value)) else rule.takes
        raise InputError(f"{key}: {scheduler} cannot take {shorten(text)}", hint=f"it takes {takes}")
    if rule.percent:
        text = text.replace("%", "%%")
    return ScriptText(f'"{text}"' if rule.quoted and not _PLAIN.fullmatch(text) else text)


_FOLDERS = "what can name a folder too: at most 200 bytes, no /, not . or .. or blank, no blank at an end"


def _fits_folder(name: str) -> bool:
    """A job's name is also that of a folder: no slash, not ``..``, no blank at an end, and not too long."""
    return "/" not in name and name.strip(". ") != "" and name == name.strip() and len(name.encode()) <= 200


def fitted_name(scheduler: SchedulerName, name: str) -> str:
    """Return a job's name as the scheduler takes it; records and folders keep the full one.

    A name of which more than half would be replaced, as most Japanese ones, would be a row of underscores that nobody
    knows again: it becomes ``job-`` and the first eight digits of its SHA-256.
    """
    forbidden, first, longest = _NAMES[scheduler]
    if _is_lost(scheduler, name):
        return f"job-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"
    fitted = re.sub(forbidden, "_", name)
    return (fitted if re.match(first, fitted) else f"j{fitted}")[:longest]


def about_name(scheduler: SchedulerName, name: str) -> Iterator[str]:
    """Yield a note where the scheduler's own commands show a name that is nothing like the job's."""
    if _is_lost(scheduler, name):
        shown = fitted_name(scheduler, name)
        yield f"name: {scheduler} does not accept {shorten(name)} and shows {shown}; hpcjob keeps the full name"


def _is_lost(scheduler: SchedulerName, name: str) -> bool:
    """Whether more than half of a name would be replaced."""
    return len(re.findall(_NAMES[scheduler][0], name)) * 2 > len(name)

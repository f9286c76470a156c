"""Errors of ``hpcjob``, all of them `UserError`: shown as what is wrong and what to do.

UserError
└── HpcjobError          exit code 1
    ├── InputError       a job file, profile, option or value is refused (2)
    ├── SchedulerError   a scheduler's command failed; its own words are in the message (1)
    └── UnknownJobError  no record of that job (2)
"""

from __future__ import annotations

from hpcjob import exitcodes
from neoxlite.common.errors import UserError


class HpcjobError(UserError):
    """Base of all errors that ``hpcjob`` means a user to read."""


class InputError(HpcjobError):
    """A job file, profile, option or value is refused; the message names file, line or key."""

    exit_code = exitcodes.USAGE


class SchedulerError(HpcjobError):
    """A scheduler's command failed or did not answer; the message carries what it said."""


class UnknownJobError(HpcjobError):
    """No job of that id or name is known."""

    exit_code = exitcodes.USAGE

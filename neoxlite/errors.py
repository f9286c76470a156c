"""Errors of the trainer, all of them `UserError`: shown as what is wrong and what to do.

UserError
└── NeoxliteError      exit code 1
    ├── ConfigError    a key, value or file of the configuration, or a variable of the environment (2)
    ├── DataError      a dataset, tokenizer or index (2)
    └── CheckpointError a checkpoint that cannot be read or written (1), or is not the one to use (2)
"""

from __future__ import annotations

from neoxlite.common.errors import UserError


class NeoxliteError(UserError):
    """Base of all errors the trainer means a user to read."""


class ConfigError(NeoxliteError):
    """A configuration file, key, value or variable is wrong; the message names file, line and key."""

    exit_code = 2


class DataError(NeoxliteError):
    """A dataset, tokenizer or index file is missing, damaged or does not fit."""

    exit_code = 2


class CheckpointError(NeoxliteError):
    """A checkpoint cannot be read or written; with ``exit_code=2`` there is none such, or it is not this run's."""

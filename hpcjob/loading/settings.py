"""The user's own defaults, in ``~/.config/hpcjob/config.yml``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hpcjob.documents.checking import convert
from hpcjob.documents.reading import read
from hpcjob.job import Text
from hpcjob.resources import config_dir

_ACCOUNT = "HPCJOB_ACCOUNT"


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The user's own defaults.

    Attributes:
        profile: profile of a job that names none.
        accounts: profile name or alias -> group account.
        mail_to: address for the mails of jobs that ask for some.
    """

    profile: Text | None = None
    mail_to: Text | None = None
    accounts: dict[Text, Text] = {}

    def account_of(self, profile: Sequence[str]) -> str | None:
        """Return the account for the profile of these names, its own name first."""
        return next((self.accounts[name] for name in profile if name in self.accounts), None)


def settings_file() -> Path:
    """Return the path of the settings, whether or not there are some."""
    return config_dir() / "config.yml"


def load_settings() -> Settings:
    """Return the user's settings; without a file, none. Raises InputError if the file cannot be read as such."""
    path = settings_file()
    try:
        if not path.exists():
            return Settings()
    except PermissionError:
        pass  # of a folder above; reading says so
    return convert(read(path, "configuration"), Settings, "configuration")


def usual_profile(settings: Settings) -> str | None:
    """Return the profile of a job that names none: that of ``HPCJOB_PROFILE``, else of the settings."""
    return os.environ.get("HPCJOB_PROFILE") or settings.profile


def usual_account(settings: Settings, profile: Sequence[str]) -> tuple[str | None, str]:
    """Return the account of a job that names none, and where that stands: in ``HPCJOB_ACCOUNT``, else in the settings.

    Args:
        profile: the names of the job's profile.
    """
    if given := os.environ.get(_ACCOUNT):
        return given, _ACCOUNT
    return settings.account_of(profile), str(settings_file())

"""The job directory: one folder a submission, with all that went into it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hpcjob.documents.writing import whole
from hpcjob.errors import HpcjobError, InputError
from neoxlite.common.files import write_whole

if TYPE_CHECKING:
    from hpcjob.plan import Plan

# Besides what cannot be in a name: what one scheduler or another does not take in the path of a job's output.
_UNSAFE = re.compile(r"[/\x00-\x1f\x7f\s\"'\\$%:*?]")
_NAME_BYTES = 100
_GIT_TIMEOUT_S = 20.0
_DIFF_BYTES = 20_000_000


def new_path(plan: Plan, submit_dir: Path) -> Path:
    """Return where the next job directory of ``plan`` would be: ``outputs/NAME/TIME-UID`` below ``submit_dir``."""
    time = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return submit_dir / "outputs" / folder_name(plan.name) / f"{time}-{secrets.token_hex(3)}"


def folder_name(name: str) -> str:
    """Return ``name`` as a folder's name that fits into directives: no leading dot, at most 100 bytes."""
    safe = _UNSAFE.sub("_", name).lstrip(".").strip() or "job"
    return safe.encode()[:_NAME_BYTES].decode(errors="ignore")


def check_shared(path: Path, plan: Plan) -> None:
    """Refuse a path that compute nodes do not see.

    Raises:
        InputError: it is below one of the profile's ``paths.not_shared``.
    """
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to one another
        raise InputError(f"{path}: {error}", hint="fix the links on the way to it") from None
    for prefix in plan.profile.paths.not_shared:
        if real.is_relative_to(Path(prefix).resolve()):
            raise InputError(
                f"{real}: {plan.profile.name} does not share {prefix} with its compute nodes (paths.not_shared)",
                hint="submit from a folder on a shared file system",
            )


def create(path: Path) -> None:
    """Make a new job directory that only its owner may enter.

    Raises:
        HpcjobError: it cannot be made; nothing is left.
    """
    made = [parent for parent in (path.parent.parent, path.parent) if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError as error:
        _remove_empty(made)
        raise HpcjobError(
            f"{error.filename}: {error.strerror}; nothing was submitted",
            hint="submit from a folder that you may write, with free space",
        ) from None


def fill(path: Path, plan: Plan, script: str) -> Path:
    """Write the script and what it was made from; return the script's path.

    Raises:
        HpcjobError: a file cannot be written.
    """
    job = msgspec.structs.replace(plan.job, name=plan.name, profile=plan.profile.name, account=plan.account)
    try:
        write_whole(path / "script.sh", script, mode=0o700)
        write_whole(path / "job.yml", whole(job), mode=0o600)
        write_whole(path / "profile.yml", whole(plan.profile), mode=0o600)
        _write_git(path)
    except OSError as error:
        raise HpcjobError(
            f"{error.filename or path}: {error.strerror}; nothing was submitted", hint="check the free space there"
        ) from None
    return path / "script.sh"


def started_id(path: Path) -> str | None:
    """Return the id of the job whose script has begun its log there; None: no script has started."""
    single = (log.name.removesuffix("_job.out") for log in path.glob("*_job.out"))
    element = (log.name.removesuffix(f"_{log.parent.name}_job.out") for log in path.glob("*/*_job.out"))
    return next(single, None) or next(element, None)


def remove(path: Path) -> None:
    """Remove the directory of a job that never was, and the folders above it that this leaves empty."""
    shutil.rmtree(path, ignore_errors=True)
    _remove_empty([path.parent.parent, path.parent])


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _write_git(path: Path) -> None:
    """Write ``git.txt`` (commit, branch, changed files) and ``git.diff``, as far as there is a repository."""
    commit = _git("log", "-1", "--format=%H %cI %D")
    if commit is None:
        write_whole(path / "git.txt", "no git repository\n", mode=0o600)
        return
    status = _git("status", "--porcelain=v1", "--branch")
    text = commit + (status if status is not None else b"git status did not answer\n")
    write_whole(path / "git.txt", text, mode=0o600)
    diff = _git("diff", "--no-ext-diff", "--binary", "HEAD")
    if diff:
        cut = b"\n[cut here: %d bytes]\n" % len(diff) if len(diff) > _DIFF_BYTES else b""
        write_whole(path / "git.diff", diff[:_DIFF_BYTES] + cut, mode=0o600)


def _git(*arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

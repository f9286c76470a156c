"""The profile of an executor: one that is named, changes to one, or what is known of a scheduler without a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcjob.documents.checking import convert
from hpcjob.documents.document import Document, leaves
from hpcjob.errors import InputError
from hpcjob.loading.overrides import Override
from hpcjob.loading.profiles import profile_names, read_profile
from hpcjob.loading.settings import load_settings, usual_profile
from hpcjob.profile import ClusterProfile, SchedulerName


def profile_of(
    given: str | Mapping[str, Any] | None, scheduler: SchedulerName | None, bare: Mapping[str, Any], prefix: str
) -> ClusterProfile:
    """Return the profile to submit by.

    Args:
        given: name, alias or path of a profile; or a mapping as in a profile, on top of the one that it ``extends``, or
            of ``bare``. None: ``HPCJOB_PROFILE``, else that of the user's settings, if it is of ``scheduler``; else
            ``bare``.
        scheduler: the only scheduler that the executor takes; None: any, and there is no bare one.
        bare: keys of a profile that names no site.
        prefix: name of the executor, for errors.

    Raises:
        InputError: there is no such profile, or it is of another scheduler.
    """
    place = f"{prefix}_profile"
    usual = usual_profile(load_settings())
    if isinstance(given, str):
        profile, _ = read_profile(given)
    elif isinstance(given, Mapping):
        profile = _changed(dict(given), bare, place, usual if scheduler is None else None)
    elif given is not None:
        raise InputError(
            f"{place}: {given!r} is not a profile", hint="give its name, its path, or a mapping of its keys"
        )
    elif usual is None and scheduler is None:
        raise InputError(f"{place}: no profile given", hint=f"give one of {', '.join(profile_names())}")
    else:
        profile = read_profile(usual)[0] if usual else _bare(bare, {}, place)
        if scheduler not in (None, profile.scheduler.type):
            return _bare(bare, {}, place)
    if scheduler not in (None, profile.scheduler.type):
        raise InputError(
            f"{place}: {profile.name} is a cluster of {profile.scheduler.type}, this executor submits to {scheduler}",
            hint='use cluster="hpcjob", which takes every profile',
        )
    return profile


def _changed(changes: dict[str, Any], bare: Mapping[str, Any], place: str, usual: str | None) -> ClusterProfile:
    parent = changes.pop("extends", None) or usual
    if parent is None and bare:
        return _bare(bare, changes, place)
    if not isinstance(parent, str):
        raise InputError(f"{place}: a mapping that extends no profile", hint='add "extends": "NAME"')
    return read_profile(parent, [Override(path, value, place) for path, value in leaves(changes)])[0]


def _bare(bare: Mapping[str, Any], changes: Mapping[str, Any], place: str) -> ClusterProfile:
    document = Document({}, origin=place)
    for path, value in (*leaves(bare), *leaves(changes)):
        document.set(path, value, place)
    document.keep_text(("env",))
    return convert(document, ClusterProfile, "cluster profile")

"""What people get wrong in jobs, found in a plan before it is submitted; the rules are data, in ``lints.yml``."""

from __future__ import annotations

from hpcjob.plan import Plan


def lint(plan: Plan) -> list[str]:
    """Return what looks wrong in ``plan``, a sentence each."""
    return []

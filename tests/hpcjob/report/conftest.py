"""A current folder and an index of each test's own; logs in the shapes that trainers print."""

from __future__ import annotations

from tests.hpcjob.jobs import here

__all__ = ["here"]

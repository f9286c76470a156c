"""A home and a current folder of each test's own, and no job left behind."""

from tests.hpcjob.jobs import here

__all__ = ["here"]

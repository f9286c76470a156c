"""Fuzzing of the readers of files that users bring: see `tests.neoxlite.fuzz.__main__`."""

"""Batch jobs for training language models on shared supercomputers: render, submit, track and read them."""

__version__ = "0.1.0"

"""Ranks from the environment, the process grid and its groups, tensor-parallel linear layers."""

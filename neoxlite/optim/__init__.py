"""Learning-rate schedule, parameter groups, and the optimizer that the engine drives."""

"""A GPT-NeoX-compatible pre-training engine on torch and DeepSpeed."""

__version__ = "0.1.0"

"""Models between formats: GPT-NeoX's checkpoints, Hugging Face folders, and our own checkpoints."""

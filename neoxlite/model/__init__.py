"""The GPT-NeoX model family as a list of layers, which the pipeline cuts and tensor parallelism slices."""

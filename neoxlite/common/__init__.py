"""What both commands share: user errors, the lazy command group, files written whole. Imports no torch."""

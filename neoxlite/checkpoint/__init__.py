"""Checkpoints: written whole or not at all, checked before they are read, the same whatever the layout."""

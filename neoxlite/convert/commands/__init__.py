"""The subcommands of ``neoxlite convert``."""

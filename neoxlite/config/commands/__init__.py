"""The commands of ``neoxlite config``, one a module."""

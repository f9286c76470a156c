"""From files and options to a plan: job files, cluster profiles and the user's own settings are found, merged and read.

Each value remembers the file and line, or the option, that gave it, so that an error can name the place.
"""

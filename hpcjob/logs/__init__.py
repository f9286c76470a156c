"""Read the logs of a job: bytes to lines to typed events to what a person wants to see.

``sources`` which files a job has      ``follow`` bytes as they are appended, and the last lines of a file
``lines``   bytes to clean text         ``parse``  a line to iteration, validation and checkpoint events
``rulebook`` ``rules/*.yml``: patterns  ``errors`` ``nccl`` events to findings, folded over ranks by ``fold``
``metrics`` exact values beside the log ``table``  the iteration table
"""

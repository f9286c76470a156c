"""The process that stands over a local job, as a node's daemon does over a batch job. Standard library only.

Started by `hpcjob.schedulers.local` as a program of its own (``__main__``): it detaches from the terminal, starts the
job's script in a new session, writes down which processes these are, keeps the walltime, and when the script ends, ends
whatever it left.
"""

from pathlib import Path

PROGRAM = Path(__file__).with_name("__main__.py")

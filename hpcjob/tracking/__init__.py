"""Track jobs: the index of submissions, exit records, states, and submitit's Job classes for them.

``records``  the index      ``exit_record`` what a script leaves      ``status``   three witnesses, one state
``jobdir``   job folders    ``submission``  once, or not at all       ``refresh``  many states by one question
``submitit_jobs``           submitit's Job and InfoWatcher
"""

from hpcjob.tracking.records import Record, find_job
from hpcjob.tracking.refresh import job_ended, refresh

__all__ = ["Record", "find_job", "job_ended", "refresh"]

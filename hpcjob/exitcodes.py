"""Exit codes; those of a job itself (85-87) are made by its script, passed on by ``submit --follow`` and ``wait``."""

OK = 0
FAILURE = 1
USAGE = 2
FINDINGS_FIRST = 64  # to 79
NOT_ENDED = 75  # sysexits.h EX_TEMPFAIL: `wait --timeout` gave up, the job goes on
SAVED_FOR_WALLTIME = 85
STOPPED_ON_REQUEST = 86
CHECK_FAILED = 87

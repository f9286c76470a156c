"""Exit codes of a training process; the job script passes them on."""

SAVED_FOR_WALLTIME = 85
STOPPED_ON_REQUEST = 86
CHECK_FAILED = 87

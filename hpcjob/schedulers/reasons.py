"""What a scheduler's word for a waiting job means: it waits for what comes by itself, or it will never start as it is.

Sources: job_reason_codes of Slurm's documentation (https://slurm.schedmd.com/job_reason_codes.html); the comment that
OpenPBS 23.06 gives a job; state ``Eqw`` of Grid Engine's qstat(1), as `hpcjob.schedulers.gridengine` tells it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Never(NamedTuple):
    """Why a job will not start as it is.

    Attributes:
        why: what it asks for, after "the job".
        todo: what to change.
        is_certain: whether nothing that may change by itself, such as a limit or a node that is down, would help.
    """

    why: str
    todo: str
    is_certain: bool = False


_LIMITS = "`sacctmgr show assoc user=$USER` and `sacctmgr show qos` list the limits"
_NEVER = {
    r"PartitionNodeLimit": Never(
        "asks for more nodes than its partition allows, or for nodes that are down",
        "ask for fewer --nodes, or another --queue (`sinfo -s`)",
    ),
    r"PartitionTimeLimit|(?:QOS|Association)TimeLimit|(?:QOS|Assoc)MaxWall\w*": Never(
        "asks for a longer walltime than its partition, account or QOS allows",
        "ask for a shorter --walltime (`sinfo -o '%P %l'`)",
    ),
    r"(?:QOS|Assoc)Max\w*Per(?:Job|Node)\w*": Never(
        "asks for more than its account or QOS allows one job", f"ask for less; {_LIMITS}"
    ),
    r"(?:QOS|Assoc)Min\w*": Never("asks for less than its account or QOS accepts", f"ask for more; {_LIMITS}"),
    r"BadConstraints": Never(
        "asks for what no node has", "change `constraint`, `nodelist` or the GPUs (`sinfo -N -o '%N %f %G'`)"
    ),
    r"(?:Account|QOS)NotAllowed|InvalidAccount|InvalidQOS": Never(
        "names an account or QOS that its partition does not accept", f"give another --account or `qos`; {_LIMITS}"
    ),
    r"DependencyNeverSatisfied": Never(
        "comes after a job that did not end as required", "look at that job first (hpcjob explain)", is_certain=True
    ),
    r"Can Never Run": Never("asks for more than the cluster has", "ask for less, or another --queue"),
    r"error state ": Never("is in an error state of Grid Engine", "fix what `qstat -j ID` reports"),
}
_HELD = re.compile(r"JobHeld(?:User|Admin)|held\b|launch failed requeued held|JobHoldMaxRequeue")


def never_starts(reason: str | None) -> Never | None:
    """Return why a job that waits for ``reason`` will not start as it is; None: it may."""
    return next((never for pattern, never in _NEVER.items() if reason and re.match(pattern, reason)), None)


def is_held(reason: str | None) -> bool:
    """Whether a job that waits for ``reason`` has to be released."""
    return bool(reason and _HELD.match(reason))

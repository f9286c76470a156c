"""One cause, its evidence, one fix: what the gathered evidence of a job comes to.

A job that ended as it was asked to has no cause beside that, see `hpcjob.logs.ending`, and one that ended with code 0
has none. Of others, the order of suspicion, each asked only if those before it found nothing:

1. errors that have a cause of their own (`hpcjob.logs.explain.blame`; where the job was ended from outside, what may
   only follow from that, as lost connections do, does not count);
2. the scheduler or a signal that ended the job from outside;
3. ranks that never came up, where the others waited for them;
4. what PyTorch's flight recorder shows: the call that a rank did not make;
5. a host that others lost and that says nothing itself;
6. the rank that the others' watchdogs waited for;
7. generic errors and exit codes (symptoms);
8. what works but not as it should;
9. followers only: where to look on.
"""

from __future__ import annotations

import msgspec

from hpcjob import exitcodes
from hpcjob.logs import topics
from hpcjob.logs.ending import Ending
from hpcjob.logs.events import Event, ProcessEnd
from hpcjob.logs.explain import blame
from hpcjob.logs.explain.cost import gpu_hours
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.explain.exclusion import hosts_at_fault, ways_to_exclude
from hpcjob.logs.explain.oddities import oddities, sentence
from hpcjob.logs.explain.quotes import quotes_of
from hpcjob.logs.explain.reasons import divergence, of_error, of_suspicion, of_warning, without_cause
from hpcjob.logs.explain.verdict import Quote, Verdict, verdict
from hpcjob.logs.failures import role_of
from hpcjob.logs.suspicion import Suspicion
from hpcjob.logs.topics import TOPICS

_SCHEDULER_TOPICS = ("walltime", "limit", "preemption")
_OTHERS_KEPT = 5


def judge(
    evidence: Evidence,
    *,
    warnings: list[str] | None = None,
    ending: Ending | None = None,
    scheduler: str | None = None,
) -> Verdict:
    """Return the verdict.

    Args:
        warnings: what differs from the profile, found elsewhere.
        ending: how the job ended by its own files and its scheduler, where they are known.
        scheduler: its name, for the words that leave hosts out; None: not known.
    """
    ending = ending or Ending()
    said = [*(warnings or []), *oddities(evidence)]
    causes = blame.causes(evidence)
    stop, outside = ending.clean_stop(), ending.from_outside()
    if stop is not None:
        return _of_stop(stop, causes, ending, evidence, said)
    if ending.code == exitcodes.OK:
        return _of_success(causes, evidence, said)
    if outside is not None:
        causes = [blamed for blamed in causes if not _may_follow(blamed.group.first, outside)]
    if causes:
        found = _of_first(causes, evidence)
    elif outside is not None:
        found = _of_ending(outside, ending, evidence)
    else:
        found = without_cause(evidence, said, ending.failure, ending.code)
    if evidence.diverged is not None and found.code not in (exitcodes.OK, topics.NUMERICS):
        found = msgspec.structs.replace(found, others=[*found.others, divergence(evidence.diverged)])
    if evidence.passed:
        found = _with_passed(found, evidence)
    if found.code == exitcodes.OK and (live := ending.live) is not None:
        found = msgspec.structs.replace(found, cause=f"the job is {live}; so far {found.cause}")
    return msgspec.structs.replace(
        found,
        followers=_followers(evidence, found),
        warnings=[*said, *evidence.unread],
        exclude_with=ways_to_exclude(found.exclude, scheduler),
        last_iteration=None if evidence.last is None else evidence.last.iteration,
        last_checkpoint=None if evidence.saved is None else evidence.saved.iteration,
        cost_gpu_hours=None if found.code == 0 else gpu_hours(evidence),
    )


def _followers(evidence: Evidence, found: Verdict) -> dict[str, int]:
    followers = ((sentence(blamed), blamed.group.times) for blamed in evidence.blamed("follower"))
    return {text: times for text, times in followers if not found.cause.startswith((text, f"not known: {text}"))}


def _of_success(causes: list[Blamed], evidence: Evidence, said: list[str]) -> Verdict:
    """It ended with code 0: what looks like an error was none that counted."""
    seen = list(dict.fromkeys(sentence(blamed) for blamed in causes))
    found = of_warning(said[0], evidence) if said else verdict(exitcodes.OK, "the job ended with exit code 0")
    return msgspec.structs.replace(
        found,
        others=[f"in passing: {text}" for text in seen][:_OTHERS_KEPT],
        warnings=said,
        last_iteration=None if evidence.last is None else evidence.last.iteration,
        last_checkpoint=None if evidence.saved is None else evidence.saved.iteration,
    )


def _with_passed(found: Verdict, evidence: Evidence) -> Verdict:
    """Add what the run outlived."""
    passed = [blamed for blamed in evidence.passed if _is_told(blamed)]
    seen = dict.fromkeys(f"in passing: {sentence(blamed)}" for blamed in passed)
    cause = "no error that ended the run" if found.code == exitcodes.OK and seen else found.cause
    return msgspec.structs.replace(found, cause=cause, others=[*found.others, *seen][:_OTHERS_KEPT])


def _is_told(blamed: Blamed) -> bool:
    return role_of(blamed.group.first) != "follower"


def _of_first(causes: list[Blamed], evidence: Evidence) -> Verdict:
    found = _placed(of_error(causes[0], evidence), causes[1:], evidence)
    others = [text for blamed in causes[1:] if (text := sentence(blamed)) != found.cause]
    return msgspec.structs.replace(found, others=list(dict.fromkeys(others))[:_OTHERS_KEPT])


def _placed(found: Verdict, others: list[Blamed], evidence: Evidence) -> Verdict:
    """Add who and where from another error of the same class, if the first one does not tell."""
    if found.host is not None or found.rank is not None:
        return msgspec.structs.replace(found, rank=found.rank if found.host is None else _rank_of_same(found, others))
    for blamed in others:
        event = blamed.group.first
        if TOPICS[blame.topic_of(event)].code == found.code and (event.host or event.rank is not None):
            exclude = found.exclude or hosts_at_fault(blamed, event.host, evidence)
            return msgspec.structs.replace(found, host=event.host, rank=event.rank, exclude=exclude)
    return found


def _rank_of_same(found: Verdict, others: list[Blamed]) -> int | None:
    """Return the rank, where NCCL tells the host of an error and Python the rank: the same rule, and nobody else."""
    if found.rank is not None or found.rule is None:
        return found.rank
    same = [blamed.group for blamed in others if getattr(blamed.group.first, "rule", None) == found.rule]
    ranks = {rank for group in same for rank in group.ranks}
    return next(iter(ranks)) if len(ranks) == 1 and all(group.hosts <= {found.host} for group in same) else None


def _may_follow(event: Event, outside: Suspicion) -> bool:
    """Whether an error is what any job shows that is ended: lost connections, processes killed after a while."""
    if isinstance(event, ProcessEnd):
        return outside.code == topics.ENDED
    return blame.blame_of(event) >= TOPICS["cancelled"].blame


def _of_stop(stop: Suspicion, causes: list[Blamed], ending: Ending, evidence: Evidence, said: list[str]) -> Verdict:
    """A clean stop: what the launchers complain of follows from it; only who asked for it may stand in the log."""
    asked = next((blamed for blamed in causes if blame.topic_of(blamed.group.first) in _SCHEDULER_TOPICS), None)
    found = _of_ending(stop, ending, evidence)
    if asked is not None:
        code = TOPICS[blame.topic_of(asked.group.first)].code
        found = msgspec.structs.replace(
            found,
            code=code,
            meaning=topics.MEANINGS[code],
            cause=f"{stop.cause}: {sentence(asked)}",
            evidence=[*quotes_of(asked, evidence), *found.evidence],
        )
    iteration = None if evidence.last is None else evidence.last.iteration
    saved = None if evidence.saved is None else evidence.saved.iteration
    return msgspec.structs.replace(
        found,
        warnings=said,
        last_iteration=iteration if ending.outcome is None else ending.outcome.iteration,
        last_checkpoint=saved if ending.saved is None else ending.saved,
        cost_gpu_hours=gpu_hours(evidence) if ending.outcome is not None and ending.saved is None else None,
    )


def _of_ending(told: Suspicion, ending: Ending, evidence: Evidence) -> Verdict:
    found = of_suspicion(told, evidence, [])
    quotes = [Quote(source=source, text=text) for source, text in ending.witnesses()]
    return msgspec.structs.replace(found, evidence=quotes)

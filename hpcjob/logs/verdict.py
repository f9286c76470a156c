"""One cause, its evidence, one fix: what the gathered evidence of a job comes to.

A job that ended as it was asked to has no cause beside that, see `hpcjob.logs.ending`. Of others, the order of
suspicion, each asked only if those before it found nothing:

1. errors that have a cause of their own, by the order of blame of their topic (`hpcjob.logs.topics`), then the rank
   that torchrun saw fail first, then time by the log's own clock, then the reading order
   (where the job was ended from outside, what may only follow from that, as lost connections do, does not count);
2. the scheduler or a signal that ended the job from outside;
3. ranks that never came up, where the others waited for them;
4. a host that others lost and that says nothing itself;
5. the rank that the others' watchdogs waited for;
6. generic errors and exit codes (symptoms);
7. what works but not as it should;
8. followers only: where to look on.
"""

from __future__ import annotations

import math

import msgspec

from hpcjob.logs import topics
from hpcjob.logs.ending import Ending
from hpcjob.logs.events import Event, Finding, Iteration, ProcessEnd, Traceback
from hpcjob.logs.evidence import Blamed, Evidence
from hpcjob.logs.failures import describe_code
from hpcjob.logs.fold import ranges
from hpcjob.logs.oddities import fix_in, fix_of, oddities, sentence, slow_hosts
from hpcjob.logs.oom import advice
from hpcjob.logs.suspects import Suspicion, lost_host, not_started, odd_rank, waited_for
from hpcjob.logs.topics import TOPICS

EVIDENCE_LINES = 3
_STRONG_SIGNALS = {-9: "memory", -7: "shm", -11: "program", -4: "program", -8: "program"}
_BLAME_OF_ROOT_CAUSE = 35  # a signal that torchrun saw first: before exceptions, after a machine that failed
_SCHEDULER_TOPICS = ("walltime", "limit", "preemption")
_NODE_TOPICS = ("hardware", "node", "network", "memory", "shm", "launch", "storage")


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log as evidence.

    Attributes:
        line: number of the line in ``source``, from 1.
    """

    source: str
    text: str
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    time: str | None = None


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event", tag="verdict"):
    """Why a job ended, or what is wrong with it.

    Attributes:
        code: exit code of ``hpcjob explain``; `hpcjob.logs.topics.MEANINGS` says what it means.
        cause: one sentence.
        fix: what to do.
        rule: the rule that knew the line, None if none did.
        rank, host, time: of the first process that failed, where the log tells.
        ranks: all ranks that say the same.
        evidence: lines that show it.
        followers: processes or lines that only complain of others, by what they say.
        others: further causes that were seen, after this one.
        warnings: what works but not as it should.
        exclude: hosts to leave out next time.
        cost_gpu_hours: time of all GPUs since the last checkpoint.
    """

    code: int
    meaning: str
    cause: str
    fix: str | None = None
    rule: str | None = None
    rank: int | None = None
    host: str | None = None
    time: str | None = None
    ranks: list[int] = []
    evidence: list[Quote] = []
    followers: dict[str, int] = {}
    others: list[str] = []
    warnings: list[str] = []
    exclude: list[str] = []
    last_iteration: int | None = None
    last_checkpoint: int | None = None
    cost_gpu_hours: float | None = None


def judge(evidence: Evidence, *, warnings: list[str] | None = None, ending: Ending | None = None) -> Verdict:
    """Return the verdict.

    Args:
        warnings: what differs from the profile, found elsewhere.
        ending: how the job ended by its own files and its scheduler, where they are known.
    """
    ending = ending or Ending()
    said = [*(warnings or []), *oddities(evidence)]
    causes = sorted(_causes(evidence), key=lambda item: _order(item, evidence))
    stop, outside = ending.clean_stop(), ending.from_outside()
    if stop is not None:
        return _of_stop(stop, causes, ending, evidence, said)
    if outside is not None:
        causes = [blamed for blamed in causes if not _may_follow(blamed.group.first, outside)]
    verdict = None
    if causes:
        verdict = _placed(_of_error(causes[0], evidence), causes[1:])
        seen = {verdict.cause}
        others = [text for blamed in causes[1:] if (text := sentence(blamed)) not in seen]
        verdict = msgspec.structs.replace(verdict, others=others[:5])
    elif outside is not None:
        verdict = _of_ending(outside, ending, evidence)
    else:
        verdict = _without_cause(evidence, said, ending.code)
    return msgspec.structs.replace(
        verdict,
        followers={sentence(blamed): blamed.group.times for blamed in evidence.blamed("follower")},
        warnings=said,
        last_iteration=None if evidence.last is None else evidence.last.iteration,
        last_checkpoint=None if evidence.saved is None else evidence.saved.iteration,
        cost_gpu_hours=None if verdict.code == 0 else _cost(evidence),
    )


def _may_follow(event: Event, outside: Suspicion) -> bool:
    """Whether an error is what any job shows that is ended: lost connections, processes killed after a while."""
    if isinstance(event, ProcessEnd):
        return outside.code == topics.ENDED
    return _blame(event) >= TOPICS["cancelled"].blame


def _of_stop(stop: Suspicion, causes: list[Blamed], ending: Ending, evidence: Evidence, said: list[str]) -> Verdict:
    """A clean stop: what the launchers complain of follows from it; only who asked for it may stand in the log."""
    asked = next((blamed for blamed in causes if _topic(blamed.group.first) in _SCHEDULER_TOPICS), None)
    verdict = _of_ending(stop, ending, evidence)
    if asked is not None:
        code = TOPICS[_topic(asked.group.first)].code
        verdict = msgspec.structs.replace(
            verdict,
            code=code,
            meaning=topics.MEANINGS[code],
            cause=f"{stop.cause}: {sentence(asked)}",
            evidence=[*_quotes(asked, evidence), *verdict.evidence],
        )
    iteration = None if evidence.last is None else evidence.last.iteration
    saved = None if evidence.saved is None else evidence.saved.iteration
    return msgspec.structs.replace(
        verdict,
        warnings=said,
        last_iteration=iteration if ending.outcome is None else ending.outcome.iteration,
        last_checkpoint=saved if ending.saved is None else ending.saved,
        cost_gpu_hours=_cost(evidence) if ending.outcome is not None and ending.saved is None else None,
    )


def _of_ending(told: Suspicion, ending: Ending, evidence: Evidence) -> Verdict:
    verdict = _of_suspicion(told, evidence, [])
    quotes = [Quote(source=source, text=text) for source, text in ending.witnesses()]
    return msgspec.structs.replace(verdict, evidence=quotes)


def _causes(evidence: Evidence) -> list[Blamed]:
    return [blamed for blamed in evidence.blamed("cause", "symptom") if _is_cause(blamed)]


def _is_cause(blamed: Blamed) -> bool:
    event = blamed.group.first
    if isinstance(event, ProcessEnd):
        return event.root_cause and event.exit_code in _STRONG_SIGNALS
    return isinstance(event, Finding | Traceback) and event.role == "cause"


def _order(blamed: Blamed, evidence: Evidence) -> tuple[int, bool, float, int]:
    event = blamed.group.first
    first = evidence.first_to_fail is not None and evidence.first_to_fail in blamed.group.ranks
    time_s = math.inf if blamed.time_s is None else blamed.time_s
    return _blame(event), not first, time_s, blamed.order


def _blame(event: Event) -> int:
    if isinstance(event, ProcessEnd):
        return _BLAME_OF_ROOT_CAUSE
    # An exception that followed another one was raised while that one was handled.
    return TOPICS[_topic(event)].blame + (1 if isinstance(event, Traceback) and event.followed else 0)


def _topic(event: Event) -> str:
    if isinstance(event, ProcessEnd):
        return _STRONG_SIGNALS.get(event.exit_code, "program")
    return event.topic if isinstance(event, Finding | Traceback) else "program"


def _of_error(blamed: Blamed, evidence: Evidence) -> Verdict:
    group, event = blamed.group, blamed.group.first
    code = TOPICS[_topic(event)].code
    rank, host = event.rank, event.host
    if evidence.first_to_fail in group.ranks and evidence.first_to_fail != rank:
        rank, host = evidence.first_to_fail, None  # others said the same and were read before
    if host is None and rank is not None:
        host = evidence.identity.host_of.get(rank)
    fix = event.fix if isinstance(event, Finding | Traceback) else _fix_of_signal(event)
    if isinstance(event, Traceback) and event.rule is None:
        fix = f"An exception that no rule knows: look at {event.at or 'its traceback'}."
    if code == topics.GPU_MEMORY and (better := advice(_text(event))) is not None:
        fix = better
    return Verdict(
        code=code,
        meaning=topics.MEANINGS[code],
        cause=sentence(blamed),
        fix=fix,
        rule=event.rule if isinstance(event, Finding | Traceback) else None,
        rank=rank,
        host=host,
        time=event.time,
        ranks=sorted(group.ranks),
        evidence=_quotes(blamed, evidence),
        exclude=_exclude(blamed, host, evidence),
    )


def _placed(verdict: Verdict, others: list[Blamed]) -> Verdict:
    """Add who and where from another error of the same class, if the first one does not tell."""
    if verdict.host is not None or verdict.rank is not None:
        return verdict
    for blamed in others:
        event = blamed.group.first
        if TOPICS[_topic(event)].code == verdict.code and (event.host or event.rank is not None):
            return msgspec.structs.replace(verdict, host=event.host, rank=event.rank)
    return verdict


def _exclude(blamed: Blamed, host: str | None, evidence: Evidence) -> list[str]:
    """Return the hosts that are at fault, if the fault is a machine's."""
    event = blamed.group.first
    if _topic(event) not in ("hardware", "node", "network"):
        return []
    if _topic(event) == "network":
        peer = event.fields.get("peer") if isinstance(event, Finding) else None
        if peer:
            return [evidence.identity.host(peer)] if _is_one(evidence, peer) else []
    hosts = set(blamed.group.hosts) | ({host} if host else set())
    return sorted(hosts) if len(hosts) <= max(1, len(evidence.identity.hosts) // 4) else []


def _is_one(evidence: Evidence, peer: str) -> bool:
    name = evidence.identity.host(peer)
    return name in evidence.identity.hosts or len(evidence.lost) == 1


def _fix_of_signal(event: Event) -> str | None:
    if not isinstance(event, ProcessEnd):
        return None
    return {
        -9: "Killed: host memory most likely (dmesg of that node has the proof); ask for more, or use fewer workers.",
        -7: "Bus error: /dev/shm is too small (container: --shm-size or --ipc=host).",
        -11: "A crash in compiled code: extensions that do not fit the torch in use; PYTHONFAULTHANDLER=1 shows where.",
    }.get(event.exit_code, "See that rank's own output.")


def _without_cause(evidence: Evidence, warnings: list[str], ended_with: int | None) -> Verdict:
    symptoms = sorted(evidence.blamed("symptom", "cause"), key=lambda item: _order(item, evidence))
    followers = evidence.blamed("follower")
    trouble = bool(symptoms or followers or ended_with)
    killed = [blamed for blamed in symptoms if _topic(blamed.group.first) in ("memory", "shm", "hardware")]
    if killed:
        return _of_error(killed[0], evidence)
    for suspect in (not_started, lost_host, waited_for):
        suspicion = suspect(evidence, trouble=trouble)
        if suspicion is not None:
            return _of_suspicion(suspicion, evidence, [*followers, *symptoms])
    if symptoms:
        return _of_error(symptoms[0], evidence)
    if evidence.diverged is not None:
        return _of_divergence(evidence.diverged)
    if followers:
        odd = odd_rank(evidence)
        lead = followers[0]
        late = any(_topic(blamed.group.first) == "timeout" for blamed in followers)
        code = topics.TIMEOUT if late else topics.UNKNOWN
        return Verdict(
            code=code,
            meaning=topics.MEANINGS[code],
            cause=f"what is here only follows from an error elsewhere: {sentence(lead)}",
            fix=" ".join(filter(None, (fix_in(lead.group.first), odd))) or "Read the logs of the other ranks too.",
            evidence=_quotes(lead, evidence),
        )
    if ended_with:
        return Verdict(
            code=topics.UNKNOWN,
            meaning=topics.MEANINGS[topics.UNKNOWN],
            cause=f"the job ended with {describe_code(ended_with)}, and no line of its log tells why",
            fix=odd_rank(evidence) or "Look at the last lines of each rank (hpcjob tail --rank N).",
        )
    if warnings:
        return Verdict(
            code=topics.SLOW,
            meaning=topics.MEANINGS[topics.SLOW],
            cause=warnings[0],
            fix=fix_of(evidence, warnings[0]),
            exclude=slow_hosts(evidence),
            host=next(iter(slow_hosts(evidence)), None),
        )
    return Verdict(code=0, meaning=topics.MEANINGS[0], cause="no error and nothing unusual found")


def _of_divergence(event: Iteration) -> Verdict:
    return Verdict(
        code=topics.NUMERICS,
        meaning=topics.MEANINGS[topics.NUMERICS],
        cause=f"loss or gradient is not finite from iteration {event.iteration} on",
        fix="Resume from before it with a lower learning rate or without that data; train in bf16 rather than fp16.",
        rank=event.rank,
        time=event.time,
        evidence=[Quote(source=event.source, line=event.line, text=f"iteration {event.iteration}: loss {event.loss}")],
    )


def _of_suspicion(suspicion: Suspicion, evidence: Evidence, said: list[Blamed]) -> Verdict:
    return Verdict(
        code=suspicion.code,
        meaning=topics.MEANINGS[suspicion.code],
        cause=suspicion.cause,
        fix=suspicion.fix,
        rank=suspicion.rank,
        host=suspicion.host,
        ranks=suspicion.ranks,
        exclude=[suspicion.host] if suspicion.host and suspicion.exclude else [],
        evidence=[quote for blamed in said[:EVIDENCE_LINES] for quote in _quotes(blamed, evidence)[:1]],
    )


def _text(event: Event) -> str:
    if isinstance(event, Traceback):
        return f"{event.exception}: {event.message}" if event.message else event.exception
    if isinstance(event, Finding):
        return event.text
    return event.note or "" if isinstance(event, ProcessEnd) else ""


def _quotes(blamed: Blamed, evidence: Evidence) -> list[Quote]:
    event = blamed.group.first
    texts = {_text(event): event.line}
    if isinstance(event, Traceback):
        texts = {_text(event): event.exception_line or event.line}
        if event.at:
            texts[f"at {event.at}"] = event.line
    host = event.host or (None if event.rank is None else evidence.identity.host_of.get(event.rank))
    return [
        Quote(source=event.source, line=number, text=text.strip()[:500], rank=event.rank, host=host, time=event.time)
        for text, number in texts.items()
        if text.strip()
    ]


def _cost(evidence: Evidence) -> float | None:
    """GPU-hours of the iterations since the last checkpoint, by the time of the last logged iteration."""
    last = evidence.last
    if not isinstance(last, Iteration) or last.iteration_time_ms is None or not math.isfinite(last.iteration_time_ms):
        return None
    if last.iteration is None:
        return None
    saved = 0 if evidence.saved is None or evidence.saved.iteration is None else evidence.saved.iteration
    gpus = evidence.identity.world_size or (max(evidence.seen) + 1 if evidence.seen else 0)
    if not gpus or last.iteration < saved:
        return None
    return round((last.iteration - saved) * last.iteration_time_ms / 3.6e6 * gpus, 3)


def describe_ranks(verdict: Verdict) -> str:
    """Return who failed, in words."""
    if len(verdict.ranks) > 1:
        return f"ranks {ranges(verdict.ranks)}" + (f", first {verdict.rank}" if verdict.rank is not None else "")
    where = f" on {verdict.host}" if verdict.host else ""
    return f"rank {verdict.rank}{where}" if verdict.rank is not None else verdict.host or ""

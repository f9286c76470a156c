"""Verdicts of each kind: of an error, of a suspicion, of a loss that is not finite, of what only follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hpcjob.logs import topics
from hpcjob.logs.events import Event, Finding, Iteration, ProcessEnd, Traceback
from hpcjob.logs.explain import oom
from hpcjob.logs.explain.blame import ordered, topic_of
from hpcjob.logs.explain.evidence import Blamed, Evidence
from hpcjob.logs.explain.exclusion import hosts_at_fault
from hpcjob.logs.explain.flight.compare import odd_call
from hpcjob.logs.explain.last_words import last_line
from hpcjob.logs.explain.oddities import fix_of, hosts_of, odd_ones, sentence
from hpcjob.logs.explain.quotes import quotes_of, text_of
from hpcjob.logs.explain.suspects import lost_host, not_started, waited_for
from hpcjob.logs.explain.verdict import Quote, Verdict, verdict
from hpcjob.logs.failures import describe_code
from hpcjob.logs.suspicion import Suspicion
from hpcjob.logs.topics import TOPICS

_EVIDENCE_LINES = 3
_LINES_BESIDE = 3
_KILLED_TOPICS = ("memory", "shm", "hardware")
_SUSPECTS: tuple[Callable[[Evidence], Suspicion | None], ...] = (not_started, odd_call, lost_host, waited_for)
_OF_A_FAILED_GPU = "xid-caused-by"  # follows from an error of the hardware whose own line is not in the log
_FINISHED = "training-finished"
_STEP_ENDED = "hpcjob-step"
_LINE_AT_MOST = 160
_FIX_OF_SIGNAL = {
    -9: "Killed: host memory most likely (dmesg of that node has the proof); ask for more, or use fewer workers.",
    -7: "Bus error: /dev/shm is too small (container: --shm-size or --ipc=host), or a mapped file was cut.",
    -4: "Illegal instruction: something was built for newer CPUs than this node's; build it on such a node.",
    -11: "A crash in compiled code: extensions that do not fit the torch in use; PYTHONFAULTHANDLER=1 shows where.",
}


def of_error(blamed: Blamed, evidence: Evidence) -> Verdict:
    """Return the verdict that an error is the cause."""
    group, event = blamed.group, blamed.group.first
    code = TOPICS[topic_of(event)].code
    rank, host = event.rank, event.host
    if evidence.first_to_fail in group.ranks and evidence.first_to_fail != rank:
        rank, host = evidence.first_to_fail, None  # others said the same and were read before
    if rank is None and host is None and len(group.ranks) == 1:
        rank = next(iter(group.ranks))  # its line in the job's log came before that in its own file
    if rank is None and host is None:
        rank, host = _said_beside(event, evidence)
    if host is None and rank is not None:
        host = evidence.identity.host_of.get(rank)
    return Verdict(
        code=code,
        meaning=topics.MEANINGS[code],
        cause=sentence(blamed),
        fix=_fix(event, code, evidence),
        rule=event.rule if isinstance(event, Finding | Traceback) else None,
        rank=rank,
        host=host,
        time=event.time,
        ranks=sorted(group.ranks),
        evidence=quotes_of(blamed, evidence),
        exclude=hosts_at_fault(blamed, host, evidence),
    )


def _said_beside(event: Event, evidence: Evidence) -> tuple[int | None, str | None]:
    """Return rank and host that the lines around an error tell: launchers write messages of several lines."""
    for other in evidence.blamed("cause", "symptom"):
        near = other.group.first
        if near.source != event.source or near.line is None or event.line is None:
            continue
        if abs(near.line - event.line) <= _LINES_BESIDE and (near.rank is not None or near.host is not None):
            return near.rank, near.host
    return None, None


def _fix(event: Event, code: int, evidence: Evidence) -> str | None:
    if code == topics.GPU_MEMORY and (better := oom.advice(text_of(event))) is not None:
        return better
    if isinstance(event, Traceback) and event.rule is None:
        return f"An exception that no rule knows: look at {event.at or 'its traceback'}."
    if isinstance(event, ProcessEnd):
        return _FIX_OF_SIGNAL.get(event.exit_code, "See that rank's own output.")
    return evidence.fix(event)


def of_suspicion(suspicion: Suspicion, evidence: Evidence, said: list[Blamed]) -> Verdict:
    """Return the verdict that a rank or host is suspected; ``said`` are the errors that show it."""
    quotes = [quote for blamed in said[:_EVIDENCE_LINES] for quote in quotes_of(blamed, evidence)[:1]]
    return Verdict(
        code=suspicion.code,
        meaning=topics.MEANINGS[suspicion.code],
        cause=suspicion.cause,
        fix=suspicion.fix,
        rank=suspicion.rank,
        host=suspicion.host,
        ranks=suspicion.ranks,
        exclude=[suspicion.host] if suspicion.host and suspicion.exclude else [],
        evidence=[*suspicion.quotes, *quotes],
    )


def without_cause(
    evidence: Evidence, warnings: list[str], failure: str | None = None, code: int | None = None
) -> Verdict:
    """Return the verdict where no error has a cause of its own.

    Args:
        failure: how the job ended, in words; None if it has not failed. code: its exit code, if known.
    """
    symptoms = ordered(evidence.blamed("symptom", "cause"), evidence)
    followers = evidence.blamed("follower")
    killed = [blamed for blamed in symptoms if topic_of(blamed.group.first) in _KILLED_TOPICS]
    killed += [blamed for blamed in followers if getattr(blamed.group.first, "rule", None) == _OF_A_FAILED_GPU]
    if killed:
        return of_error(killed[0], evidence)
    for suspect in _SUSPECTS:
        suspicion = suspect(evidence)
        if suspicion is not None:
            if suspicion.code == topics.TIMEOUT and evidence.diverged and diverged_before(followers, evidence):
                return of_divergence(evidence.diverged)
            return of_suspicion(suspicion, evidence, [*followers, *symptoms])
    is_late = all(topic_of(blamed.group.first) == "timeout" for blamed in symptoms)
    if symptoms and not (is_late and diverged_before(symptoms, evidence)):
        return msgspec.structs.replace(of_error(symptoms[0], evidence), odd=odd_ones(evidence))
    if evidence.diverged is not None:
        return of_divergence(evidence.diverged)
    if followers:
        return _of_followers(followers, evidence)
    if failure is not None:
        return _of_failure(failure, code, evidence)
    if warnings:
        return of_warning(warnings[0], evidence)
    return verdict(0, "no error and nothing unusual found")


def diverged_before(errors: Iterable[Blamed], evidence: Evidence) -> bool:
    """Whether the loss had stopped being a number before the first of ``errors``, as far as their files tell."""
    found = evidence.diverged
    if found is None:
        return False
    return all(
        found.offset < blamed.group.first.offset for blamed in errors if blamed.group.first.source == found.source
    )


def _place(event: Iteration) -> str:
    """Return where in the training an event is; some logs of the Hugging Face Trainer tell epochs only."""
    if event.iteration is not None:
        return f"iteration {event.iteration}"
    return "" if event.epoch is None else f"epoch {event.epoch:g}"


def _of_followers(followers: list[Blamed], evidence: Evidence) -> Verdict:
    late = any(topic_of(blamed.group.first) == "timeout" for blamed in followers)
    asked = [blamed for blamed in followers if topic_of(blamed.group.first) == "cancelled"]
    if all(topic_of(blamed.group.first) == "network" for blamed in followers) and _came_to_its_end(evidence):
        # Processes end one after the other, and the last ones still talk to those that are gone.
        return verdict(0, f"the training had finished; afterwards: {sentence(followers[0])}")
    if asked and not late:
        return msgspec.structs.replace(of_error(asked[0], evidence), exclude=[])
    if all(getattr(blamed.group.first, "rule", None) == _STEP_ENDED for blamed in followers):
        return _of_silence(followers[0], evidence)
    said = verdict(
        topics.TIMEOUT if late else topics.UNKNOWN,
        f"not known: what is here only follows from an error elsewhere ({sentence(followers[0])})",
        evidence.fix(followers[0].group.first) or "Read the logs of the other ranks too.",
    )
    return msgspec.structs.replace(said, evidence=quotes_of(followers[0], evidence), odd=odd_ones(evidence))


def _of_silence(step: Blamed, evidence: Evidence) -> Verdict:
    """Return the verdict of a step whose processes said nothing that a rule knows: what they said last."""
    event = step.group.first
    code = int(getattr(event, "fields", {}).get("code", 1))
    of_signal, fix = _signal_in(code)
    last = last_line(event, evidence.first_to_fail)
    its_last = "" if last is None else f" that a rule knows; its last line: {last.text.strip()[:_LINE_AT_MOST]}"
    others = ", of other ranks with --rank N" if len(evidence.seen) > 1 else ""
    said = verdict(
        topics.UNKNOWN,
        f"not known: {sentence(step)}{of_signal}, and said nothing{its_last}",
        fix or f"Look at the lines before it: hpcjob tail --raw{others}.",
    )
    quote = [] if last is None else [Quote(source=last.source, line=last.number or None, text=last.text.strip())]
    return msgspec.structs.replace(said, evidence=[*quote, *quotes_of(step, evidence)], odd=odd_ones(evidence))


def _came_to_its_end(evidence: Evidence) -> bool:
    last = evidence.last
    if last is not None and last.iteration is not None and last.iteration == last.train_iters:
        return True
    return any(getattr(blamed.group.first, "rule", None) == _FINISHED for blamed in evidence.blamed("info"))


def _of_failure(failure: str, code: int | None, evidence: Evidence) -> Verdict:
    """Return the verdict of a failure that no line tells of."""
    of_signal, fix = _signal_in(code)
    said = verdict(
        topics.UNKNOWN,
        f"not known: the job ended with {failure}{of_signal}, and no line of its log shows why",
        fix or "Look at the last lines of each rank (hpcjob tail --rank N).",
    )
    return msgspec.structs.replace(said, odd=odd_ones(evidence))


def _signal_in(code: int | None) -> tuple[str, str | None]:
    """Return which signal a shell's code above 128 tells, in words, and what to do about it; else nothing."""
    if code is None or not 128 < code < 128 + 65:
        return "", None
    return f", that of {describe_code(128 - code)}", _FIX_OF_SIGNAL.get(128 - code)


def of_warning(warning: str, evidence: Evidence) -> Verdict:
    """Return the verdict that it works, but not as it should."""
    hosts = hosts_of(evidence, warning)
    said = verdict(topics.SLOW, warning, fix_of(evidence, warning))
    return msgspec.structs.replace(said, exclude=hosts, host=next(iter(hosts), None))


def divergence(event: Iteration) -> str:
    """Say from where on the loss or the gradient is no number."""
    return f"loss or gradient is not finite from {_place(event) or 'here'} on"


def of_divergence(event: Iteration) -> Verdict:
    """Return the verdict that the training diverged."""
    place = _place(event)
    said = verdict(
        topics.NUMERICS,
        divergence(event),
        "Resume from before it with a lower learning rate or without that data; train in bf16 rather than fp16.",
    )
    numbers = (("loss", event.loss), ("grad_norm", event.grad_norm))
    told = ", ".join(f"{name} {value}" for name, value in numbers if value is not None)
    quote = Quote(source=event.source, line=event.line, text=f"{place}: {told}" if place else told)
    return msgspec.structs.replace(said, rank=event.rank, time=event.time, evidence=[quote])

"""From what the user names to a verdict: job, files or standard input, with the profile and the job's own files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hpcjob import exitcodes
from hpcjob.logs import topics
from hpcjob.logs.ending import Ending
from hpcjob.logs.explain import expectations
from hpcjob.logs.explain.flight.find import dumps_below, is_dump
from hpcjob.logs.explain.gather import gather, gather_stream
from hpcjob.logs.explain.judge import judge
from hpcjob.logs.explain.odd_lines import odd_lines
from hpcjob.logs.explain.verdict import Verdict
from hpcjob.logs.rulebook import load_errors, own_files
from hpcjob.logs.sources import Source
from hpcjob.logs.target import STANDARD_INPUT, Target, resolve
from hpcjob.regular import size_of
from neoxlite.common.paths import is_dir
from neoxlite.common.printable import tell

_NOT_KNOWN: Final = (topics.UNKNOWN, topics.TIMEOUT)


def explained(words: Sequence[str], *, profile: str | None = None, rules: Sequence[Path] = ()) -> Verdict | None:
    """Return why the named job ended; None where it has no log yet, which is said.

    Args:
        words: what the user names, as for ``hpcjob tail``.
        profile: name or file of a profile to compare with; that of the job if None.
        rules: files of rules that go before all others.

    Raises:
        HpcjobError: nothing of that name, or something that cannot be read.
    """
    book = load_errors(*rules, found=own_files())
    sources: list[Source] = []
    if tuple(words) == (STANDARD_INPUT,):
        target = Target()
        evidence = gather_stream(sys.stdin.buffer, "stdin", book=book)
        ending = target.ending()
    else:
        target = resolve(words)
        ending = target.ending(ask=True)
        sources, dumps = _files(target)
        if not (sources or dumps or ending.clean_stop() or ending.from_outside() or ending.failure):
            tell(_nothing(target, ending), "hpcjob explain")
            return None
        evidence = gather(sources, book=book, hosts=target.hosts(), dumps=dumps)
    expected = expectations.profile_of(target.directory, profile)
    warnings = [] if expected is None else expectations.differences(evidence, expected)
    warnings += expectations.world_size_difference(evidence, target.directory)
    scheduler = None if expected is None else expected.scheduler.type
    verdict = judge(evidence, warnings=warnings, ending=ending, scheduler=scheduler)
    if verdict.code == exitcodes.OK and sources and target.job_id is None and all(map(_is_empty, sources)):
        verdict = msgspec.structs.replace(verdict, cause="the log is empty: it shows neither success nor failure")
    if verdict.code in _NOT_KNOWN:
        verdict = msgspec.structs.replace(verdict, odd=[*verdict.odd, *odd_lines(sources)])
    return verdict


def _nothing(target: Target, ending: Ending) -> str:
    """Say where no log is."""
    if target.directory is not None and not target.paths and not is_dir(target.directory):
        return f"{target.directory} is gone, and the logs with it"
    return target.no_log(ending.status)


def _is_empty(source: Source) -> bool:
    return source.path.is_file() and size_of(source.path) == 0


def _files(target: Target) -> tuple[list[Source], list[Path]]:
    """Return the logs of a target, and the dumps of the flight recorder."""
    sources = [source for source in target.provider("errors", None)() if source.path.exists()]
    dumps = [source.path for source in sources if is_dump(source.path)]
    below = [] if target.directory is None else dumps_below(target.directory)
    named = set(dumps)
    return [source for source in sources if source.path not in named], [*dumps, *below]

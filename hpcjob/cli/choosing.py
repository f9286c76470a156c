"""Which recorded jobs a command is about, by id, name, folder or ``latest``: completed, found, and given an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from neoxlite.common.printable import tell

if TYPE_CHECKING:
    from hpcjob.tracking.index import Index
    from hpcjob.tracking.records import Record

_MOST_NAMED = 6


def complete_recorded(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete ids and names of recorded jobs, the newest 200."""
    from click.shell_completion import CompletionItem

    from hpcjob.tracking.index import read_index

    words = {"latest": "the newest job"}
    for record in read_index().records[:200]:
        words.setdefault(record.id, f"{record.name} ({record.profile})")
        words.setdefault(record.name, record.profile)
    return [CompletionItem(word, help=text) for word, text in words.items() if word.startswith(incomplete)]


def complete_log(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete what names a log: a recorded job, or a file."""
    from click.shell_completion import CompletionItem

    return [*complete_recorded(ctx, parameter, incomplete), CompletionItem(incomplete, type="file")]


def load_index() -> Index:
    """Read the index; say on stderr what of it is damaged, or that it cannot be read.

    The job of a submission that was broken off is looked for first.
    """
    from hpcjob.tracking.index import read_settled, state_dir

    try:
        state_dir().exists()
    except OSError as error:
        tell(f"{state_dir()}: {error.strerror}; the jobs recorded there are not seen")
    index, notes = read_settled()
    for note in notes:
        tell(f"note: {note}")
    for path, reason in index.unread.items():
        tell(f"{path}: {reason}; the jobs recorded there are not seen")
    for path, count in index.damaged.items():
        lines = "1 line" if count == 1 else f"{count} lines"
        tell(f"{path}: skipped {lines}: damaged, or written by a newer hpcjob")
    return index


def chosen(names: Sequence[str], index: Index) -> list[Record]:
    """Return the records that ``names`` mean, each once. Raises UnknownJobError."""
    from hpcjob.tracking.lookup import find_job

    return list(dict.fromkeys(find_job(name, index) for name in names))


def chosen_for_order(names: Sequence[str], index: Index) -> list[Record]:
    """Return the records that ``names`` mean where something is done to them: a name never is a guess.

    Of jobs of one name it is the one that has not ended, else the newest; ids, ``latest`` and folders as in `chosen`.

    Raises:
        UnknownJobError: none is known, or several jobs of that name have not ended; they are listed.
    """
    from hpcjob.tracking.lookup import find_job

    return list(dict.fromkeys(_live_of_name(name, find_job(name, index), index) for name in names))


def obeyed(names: Sequence[str], order: Callable[[Record, Index], str]) -> Iterator[tuple[Record, str, Index]]:
    """Give an order for each job that ``names`` mean; yield it, what happened, and the index. A refusal stops no other.

    Raises:
        UnknownJobError: as `chosen_for_order`; nothing was done.
        SchedulerError: the last refusal, once all have been tried; those before it are told.
    """
    from hpcjob.errors import SchedulerError

    index = load_index()
    failed: SchedulerError | None = None
    for record in chosen_for_order(names, index):
        try:
            done = order(record, index)
        except SchedulerError as error:
            if failed is not None:
                tell(failed.message)
            failed = error
            continue
        yield record, done, index
    if failed is not None:
        raise failed


def _live_of_name(text: str, record: Record, index: Index) -> Record:
    from hpcjob.errors import UnknownJobError
    from hpcjob.tracking.watch import ago, refresh

    if text in (record.id, "latest") or not record.name.startswith(text):
        return record
    same = [other for other in index.records if other.name == record.name and not index.ended(other)]
    if same in ([], [record]):
        return record
    statuses = refresh(same, index)
    live = [other for other in same if not statuses[other].state.ended]
    if len(live) > 1:
        each = (f"{one.id} ({one.profile}, {statuses[one].state}, {ago(one.age_s)} ago)" for one in live[:_MOST_NAMED])
        more = f", and {len(live) - _MOST_NAMED} more" if len(live) > _MOST_NAMED else ""
        raise UnknownJobError(
            f"{len(live)} jobs named {text!r} have not ended", hint=f"say which by id: {', '.join(each)}{more}"
        )
    return live[0] if live else record

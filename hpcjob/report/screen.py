"""The live screen of ``hpcjob watch``: jobs above, losses of the chosen one, its log below.

Whatever asks a scheduler or reads files runs in threads of its own, so that the screen answers at once. Names and lines
of logs are shown as plain text: nothing in them is markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, RichLog, Sparkline, Static
from textual.widgets.data_table import RowKey

from hpcjob.cli.jobs import colour_of, note_of
from hpcjob.errors import HpcjobError
from hpcjob.report.board import Board, Shown, explain_lines
from hpcjob.report.dialogs import Confirm, Reading
from hpcjob.tracking.records import Record
from hpcjob.tracking.watch import ago, cancel
from neoxlite.common.printable import printable

_ROLE_STYLES = {"cause": "bold red", "symptom": "red", "warning": "yellow", "follower": "dim"}
_COLUMNS = ("id", "name", "profile", "state", "age", "progress", "note")
_LINES_KEPT = 5_000
_LOG_EVERY_S = 1.0


class WatchApp(App[None]):
    """See the module.

    Args:
        names: jobs to show; without, those that have not ended and the last few that have.
        interval_s: how often states are asked for.
    """

    TITLE = "hpcjob watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #jobs { height: 40%; min-height: 5; }
    #curve { height: 3; padding: 0 1; }
    #curve Static { width: 44; height: 3; }
    #curve Sparkline { width: 1fr; height: 3; }
    #log { height: 1fr; border-top: solid $primary; }
    Screen.tail #jobs, Screen.tail #curve { display: none; }
    Confirm, Reading { align: center middle; }
    #box { width: 90%; height: auto; max-height: 90%; border: thick $primary; padding: 1 2; background: $surface; }
    #box Horizontal { height: auto; margin-top: 1; }
    #box Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "tail", "Tail"),
        Binding("e", "explain", "Explain"),
        Binding("c", "cancel", "Cancel"),
        Binding("a", "all", "All jobs"),
        Binding("r", "refresh", "Refresh"),
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, names: Sequence[str] = (), *, interval_s: float = 10.0) -> None:
        super().__init__()
        self.board = Board(names)
        self.shown: dict[str, Shown] = {}
        self._interval_s = interval_s
        self._chosen: str | None = None
        self._row_keys: list[RowKey] = []

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield DataTable(id="jobs", cursor_type="row")
        with Horizontal(id="curve"):
            yield Static(id="progress")
            yield Sparkline(id="losses", summary_function=max)
        yield RichLog(id="log", max_lines=_LINES_KEPT, wrap=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask and to read."""
        self._table.add_columns(*(name.upper() for name in _COLUMNS))
        self.gather()
        self.set_interval(self._interval_s, self.gather)
        self.set_interval(_LOG_EVERY_S, self.read_log)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#jobs", DataTable)

    @property
    def chosen(self) -> Shown | None:
        """The job under the cursor."""
        return None if self._chosen is None else self.shown.get(self._chosen)

    @work(thread=True, exclusive=True, group="states")
    def gather(self) -> None:
        """Ask for all states."""
        try:
            found = self.board.poll()
        except HpcjobError as error:
            self._say(error.message)
            return
        self.call_from_thread(self.show, found)

    def show(self, found: Sequence[Shown]) -> None:
        """Show the jobs; the cursor stays on its job."""
        table = self._table
        before = self._chosen
        self.shown = {_key(one.record): one for one in found}
        table.clear()
        for key, one in self.shown.items():
            table.add_row(*_cells(one), key=key)
        if not found:
            self.query_one("#progress", Static).update(Text("no jobs wait or run; press a for all jobs, q to quit"))
        elif before in self.shown:
            table.move_cursor(row=list(self.shown).index(before))
        self._show_progress()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another job was chosen: show its log."""
        key = event.row_key.value
        if key is None or key == self._chosen:
            return
        self._chosen = key
        self.query_one("#log", RichLog).clear()
        self._show_progress()
        self.read_log(anew=True)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter on a job shows its log alone."""
        self.action_tail()

    def _show_progress(self) -> None:
        one = self.chosen
        if one is None:
            return
        losses = list(one.progress.losses)
        text = Text(f"{printable(one.record.name)} ({one.record.id})\n", style="bold")
        text.append(one.progress.text or "no iterations yet", style="not bold")
        if losses:
            text.append(f"\nlast {len(losses)} losses: {min(losses):.4g} to {max(losses):.4g}", style="dim not bold")
        self.query_one("#progress", Static).update(text)
        # The widget draws from the lowest value up: the shape is what counts.
        low = min(losses, default=0.0)
        self.query_one("#losses", Sparkline).data = [loss - low for loss in losses]

    @work(thread=True, exclusive=True, group="log")
    def read_log(self, anew: bool = False) -> None:
        """Read what the chosen job has logged."""
        key, one = self._chosen, self.chosen
        if one is None or key is None:
            return
        lines = self.board.lines_of(one.record, anew=anew)
        self.board.progress_of(one.record)
        self.call_from_thread(self._show_lines, key, lines)

    def _show_lines(self, key: str, lines: Sequence[str]) -> None:
        if key != self._chosen:
            return
        log = self.query_one("#log", RichLog)
        for line in lines:
            log.write(Text(line))
        self._show_progress()

    def action_tail(self) -> None:
        """Show the log alone, or the jobs again."""
        self.screen.toggle_class("tail")
        (self.query_one("#log") if self.screen.has_class("tail") else self._table).focus()

    def action_leave(self) -> None:
        """Show the jobs again."""
        if self.screen.has_class("tail"):
            self.action_tail()

    def action_explain(self) -> None:
        """Say why the job ended."""
        if self.chosen is not None:
            self._explain(self.chosen.record)

    @work(thread=True, exclusive=True, group="explain")
    def _explain(self, record: Record) -> None:
        text = Text()
        try:
            for role, line in explain_lines(record):
                text.append(line + "\n", style=_ROLE_STYLES.get(role, ""))
        except HpcjobError as error:
            text.append(str(error))
        title = f"{printable(record.name)} ({record.id})"
        self.call_from_thread(self.push_screen, Reading(title, text))

    def action_cancel(self) -> None:
        """Ask, then cancel the job."""
        one = self.chosen
        if one is None:
            return
        if one.status.state.ended:
            self._tell(f"{one.record.id} has ended: {one.status.state}")
            return
        question = f"Cancel job {one.record.id} ({printable(one.record.name)}, {one.status.state})?"

        def answered(yes: bool | None) -> None:
            if yes:
                self._cancel(one.record)

        self.push_screen(Confirm(question), answered)

    @work(thread=True, group="cancel")
    def _cancel(self, record: Record) -> None:
        try:
            self._say(f"{record.id}: {cancel(record, self.board.index)}")
        except HpcjobError as error:
            self._say(str(error))
        self.call_from_thread(self.gather)

    def action_all(self) -> None:
        """Show all recorded jobs, or those that have not ended."""
        self.board.everything = not self.board.everything
        self.gather()

    def action_refresh(self) -> None:
        """Ask now."""
        self.gather()

    def _say(self, text: str) -> None:
        self.call_from_thread(self._tell, text)

    def _tell(self, text: str) -> None:
        self.notify(printable(text), markup=False)

    def on_unmount(self) -> None:
        """Close the files."""
        self.board.close()


def _key(record: Record) -> str:
    return "\n".join(record.key)


def _cells(one: Shown) -> list[Text]:
    return [
        Text(one.record.id),
        Text(printable(one.record.name)),
        Text(one.record.profile),
        Text(str(one.status.state), style=colour_of(one.status)),
        Text(ago(one.record.age_s)),
        Text(one.progress.text),
        Text(printable(note_of(one.status) or "")),
    ]

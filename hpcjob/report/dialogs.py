"""Dialogs of the live screen: a question, and a text to read."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Static


class Confirm(ModalScreen[bool]):
    """A question that only an explicit yes agrees to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Lay out the question; the answer that does nothing has the focus."""
        with Vertical(id="box"):
            yield Static(Text(self._question), id="question")
            with Horizontal():
                yield Button("No (n)", id="no", variant="primary")
                yield Button("Yes (y)", id="yes", variant="error")

    def on_mount(self) -> None:
        """Let Enter say no."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer by a click or Enter."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answer by a key."""
        self.dismiss(answer)


class Reading(ModalScreen[None]):
    """A text to read."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,e", "close", "Back")]

    def __init__(self, title: str, text: Text) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Lay out title, text and keys."""
        with VerticalScroll(id="box"):
            yield Static(Text(self._title, style="bold"))
            yield Static(self._text, id="verdict")
        yield Footer()

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)

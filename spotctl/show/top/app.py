"""The live view: panels on a terminal, and keys. It reads and shows; leaving it leaves the run alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult, RenderResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Footer, Static

from spotctl.show.top import views
from spotctl.show.top.snapshot import Shown

LOOK_SECONDS = 0.5
_WIDE = 120
"""From this width on footprint and loss stand side by side."""

Look = Callable[[], Shown]


class Panel(Widget):
    """A part of what is shown, drawn again whenever there is news, to the size that it has."""

    shown: reactive[Shown | None] = reactive(None)

    def __init__(self, name: str, draw: Callable[[Shown, int, int], Text | Group]) -> None:
        super().__init__(id=name)
        self._draw = draw

    def render(self) -> RenderResult:
        """What is to be seen; nothing before the first look."""
        return "" if self.shown is None or not self.size.width else self._draw(self.shown, *self.size)


class Top(App[None]):
    """A run, live. Several jobs are several lookouts; `n` goes from one to the next."""

    CSS = """
    Screen { overflow: hidden; }
    #head { height: 3; }
    #charts { height: 2fr; min-height: 5; max-height: 16; layout: vertical; }
    #footprint { height: 1fr; }
    #loss { height: 2; margin-top: 0; }
    .wide #charts { layout: horizontal; }
    .wide #footprint { width: 1fr; }
    .wide #loss { width: 1fr; height: 1fr; margin-left: 2; }
    #prices { height: auto; max-height: 40%; margin-top: 1; }
    #title { height: 1; margin-top: 1; }
    #events { height: 3fr; min-height: 3; scrollbar-size-vertical: 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Leave"),
        Binding("n", "next_job", "Next job"),
        Binding("space", "hold", "Hold / go on"),
        Binding("down", "scroll_events(1)", "Older"),
        Binding("up", "scroll_events(-1)", "Newer"),
        Binding("pagedown", "scroll_events(10)", show=False),
        Binding("pageup", "scroll_events(-10)", show=False),
    ]

    def __init__(self, looks: Sequence[Look]) -> None:
        super().__init__(ansi_color=True)
        self._looks, self._which = looks, 0
        self._held = False
        self._seen: Shown | None = None

    def compose(self) -> ComposeResult:
        """The panels, from above."""
        yield Panel("head", lambda one, *_: views.head(one))
        with Horizontal(id="charts"):
            yield Panel("footprint", lambda one, width, height: views.footprint(one, width, max(height - 1, 1)))
            yield Panel("loss", lambda one, width, height: views.losses(one, width, max(height - 1, 1)))
        yield Static(id="prices")
        yield Static(id="title")
        with VerticalScroll(id="events", can_focus=False):
            yield Static(id="told")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Looks now, and then again and again."""
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self, event: Resize) -> None:
        """The same on another size."""
        self.screen.set_class(event.size.width >= _WIDE, "wide")
        self.call_after_refresh(self._show)

    def action_next_job(self) -> None:
        """The next job."""
        self._which = (self._which + 1) % len(self._looks)
        self._held = False
        self._look()

    def action_hold(self) -> None:
        """Stays with what is shown, or goes on. The run goes on in any case."""
        self._held = not self._held
        self._look()
        self._show()

    def action_scroll_events(self, lines: int) -> None:
        """Through what happened."""
        self.query_one("#events", VerticalScroll).scroll_relative(y=lines, animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """With one job there is no next one."""
        return action != "next_job" or len(self._looks) > 1

    def _look(self) -> None:
        if not self._held:
            self._seen = self._looks[self._which]()
            self._show()

    def _show(self) -> None:
        one = self._seen
        if one is None:
            return
        for panel in self.query(Panel):
            panel.shown = one
        width, height = self.size
        self.query_one("#prices", Static).update(views.markets(one, width, max(height // 6, 2)))
        held = "   held; space goes on" if self._held else ""
        self.query_one("#title", Static).update(Text.assemble(("events", "bold"), ("  newest first" + held, "dim")))
        self.query_one("#told", Static).update(views.events(one.told, width - 1))

"""The live view of `spotctl top`: panels and keys. It only reads; quitting does not touch the run."""

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
from spotctl.show.top.snapshot import RunSnapshot

REFRESH_SECONDS = 0.5
_WIDE = 120
"""From this width on, footprint and loss are side by side."""

SnapshotSource = Callable[[], RunSnapshot]


class LivePanel(Widget):
    """A part of the screen, redrawn to its current size whenever the snapshot changes."""

    snapshot: reactive[RunSnapshot | None] = reactive(None)

    def __init__(self, name: str, draw: Callable[[RunSnapshot, int, int], Text | Group]) -> None:
        super().__init__(id=name)
        self._draw = draw

    def render(self) -> RenderResult:
        """The panel's text; empty before the first snapshot."""
        return "" if self.snapshot is None or not self.size.width else self._draw(self.snapshot, *self.size)


class Top(App[None]):
    """Shows one of several jobs at a time; `n` switches to the next."""

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
        Binding("q", "quit", "Quit"),
        Binding("n", "next_job", "Next job"),
        Binding("space", "pause", "Pause / continue"),
        Binding("down", "scroll_events(1)", "Older"),
        Binding("up", "scroll_events(-1)", "Newer"),
        Binding("pagedown", "scroll_events(10)", show=False),
        Binding("pageup", "scroll_events(-10)", show=False),
    ]

    def __init__(self, sources: Sequence[SnapshotSource]) -> None:
        super().__init__(ansi_color=True)
        self._sources, self._current = sources, 0
        self._paused = False
        self._snapshot: RunSnapshot | None = None

    def compose(self) -> ComposeResult:
        """The panels, from top to bottom."""
        yield LivePanel("head", lambda snapshot, *_: views.head(snapshot))
        with Horizontal(id="charts"):
            yield LivePanel(
                "footprint", lambda snapshot, width, height: views.footprint(snapshot, width, max(height - 1, 1))
            )
            yield LivePanel("loss", lambda snapshot, width, height: views.losses(snapshot, width, max(height - 1, 1)))
        yield Static(id="prices")
        yield Static(id="title")
        with VerticalScroll(id="events", can_focus=False):
            yield Static(id="event-lines")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.take_snapshot()
        self.set_interval(REFRESH_SECONDS, self.take_snapshot)

    def on_resize(self, event: Resize) -> None:
        """Adapts the layout to the new width."""
        self.screen.set_class(event.size.width >= _WIDE, "wide")
        self.call_after_refresh(self._show)

    def action_next_job(self) -> None:
        self._current = (self._current + 1) % len(self._sources)
        self._paused = False
        self.take_snapshot()

    def action_pause(self) -> None:
        """Pauses or continues refreshing; the run itself is not paused."""
        self._paused = not self._paused
        self.take_snapshot()
        self._show()

    def action_scroll_events(self, lines: int) -> None:
        self.query_one("#events", VerticalScroll).scroll_relative(y=lines, animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's signature
        """Hides `n` while there is only one job."""
        return action != "next_job" or len(self._sources) > 1

    def take_snapshot(self) -> None:
        """Reads the run and shows it, unless refreshing is paused."""
        if not self._paused:
            self._snapshot = self._sources[self._current]()
            self._show()

    def _show(self) -> None:
        snapshot, texts = self._snapshot, {text.id: text for text in self.query(Static)}
        # The timer may fire once more while the app closes and its panels are being removed.
        if snapshot is None or not texts.keys() >= {"prices", "title", "event-lines"}:
            return
        for panel in self.query(LivePanel):
            panel.snapshot = snapshot
        width, height = self.size
        texts["prices"].update(views.markets(snapshot, width, max(height // 6, 2)))
        paused = "   paused; press space to continue" if self._paused else ""
        texts["title"].update(Text.assemble(("events", "bold"), ("  newest first" + paused, "dim")))
        texts["event-lines"].update(views.events(snapshot.events, width - 1))

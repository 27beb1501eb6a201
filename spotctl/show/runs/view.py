"""Runs on the terminal while they go on: a line for each event, and below these the current state of each run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions
from rich.text import Text

from spotctl.show.printable import wrapped
from spotctl.show.runs import tables as run_tables
from spotctl.show.runs.figures import RunFigures

_INDENT = 10
"""Columns in front of an event: those of its time."""


@dataclass
class RunView:
    """The states that are redrawn below the events. With `several` runs, every line and every state names its run."""

    several: bool = False
    _began: float = field(default_factory=time.monotonic)
    _shown: dict[str, RunFigures] = field(default_factory=dict)

    def show(self, figures: RunFigures) -> None:
        """Shows the state of a run from now on."""
        self._shown[figures.state.run] = figures

    def event(self, text: str, width: int, job: str = "") -> Text:
        """A line that stays, with the time since the view began."""
        name = f"{job}: " if job and self.several else ""
        return Text(wrapped(f"{self._seconds:5.0f} s   {name}{text}", width, _INDENT))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        height = options.height or options.max_height
        # Runs may be added by their threads at any time.
        runs = [run_tables.live(figures, self._seconds, self._name(figures)) for figures in list(self._shown.values())]
        width = options.max_width
        parts = [[_wrapped(head, width, _INDENT), *(_wrapped(line, width) for line in rest)] for head, *rest in runs]
        if sum(len(line.plain.split("\n")) for part in parts for line in part) >= height:
            # Otherwise the terminal would show some of the runs, and nothing of the others.
            parts = [part[:1] for part in parts]
        for part in parts:
            yield from part

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _name(self, figures: RunFigures) -> str:
        began = figures.state.began
        return began.job if self.several and began is not None else ""


def _wrapped(line: Text, width: int, indent: int | None = None) -> Text:
    return Text(wrapped(line.plain, width, indent), style=line.style)

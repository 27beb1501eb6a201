"""The layout for the nodes that are there: its speed is weighed against the layers that have to move."""

from collections.abc import Sequence
from dataclasses import dataclass

from agileml.pipeline.elastic.seats import PipelineLayout

ASSUMED_BYTES_PER_SECOND = 1.25e8
"""Until layers have moved: 1 Gbit/s."""


@dataclass(frozen=True)
class LayoutOption:
    """A layout with a node for each of its seats."""

    layout: PipelineLayout
    seated: tuple[str, ...]
    moved_bytes: float
    """The size of the layers that its busiest node has to fetch."""
    relative_seconds: float
    """The time of an update, in the unit of the layouts' costs."""


@dataclass
class MovePace:
    """Measured so far: seconds of an update for each unit of its relative cost, and bytes that a node fetches."""

    seconds: float | None = None
    bytes_per_second: float = ASSUMED_BYTES_PER_SECOND

    def note_updates(self, seconds: float, relative: float) -> None:
        if relative > 0:
            self.seconds = seconds / relative

    def note_move(self, seconds: float, moved_bytes: float) -> None:
        if moved_bytes > 0 and seconds > 0:
            self.bytes_per_second = moved_bytes / seconds


def best_option(options: Sequence[LayoutOption], pace: MovePace, updates: float) -> LayoutOption:
    """The option that is first to finish `updates` updates; before any was measured, the last one, with most nodes."""
    if pace.seconds is None:
        return options[-1]
    each = pace.seconds

    def needed(option: LayoutOption) -> float:
        return option.moved_bytes / pace.bytes_per_second + updates * each * option.relative_seconds

    return min(reversed(options), key=needed)

"""`LogRow`: an event as readers of the log get it."""

from typing import NamedTuple

from spotctl.log.events import Event


class LogRow(NamedTuple):
    """An event with its position in the log and its time."""

    id: int
    run: str
    at: int
    event: Event

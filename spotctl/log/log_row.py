"""`LogRow`: an event as readers of the log get it, and `StoredRow`, as the log has it."""

from typing import NamedTuple

from spotctl.log.events import Event

StoredRow = tuple[int, str, int, str, str, int | None]
"""The position of a row, its run, time, kind, body and checksum; rows of early versions have no checksum."""


class LogRow(NamedTuple):
    """An event with its position in the log and its time."""

    id: int
    run: str
    at: int
    event: Event

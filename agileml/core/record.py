"""The part of the controller's state that outlives its process, as a JSON record."""

from typing import Any, Protocol

from agileml.core.events import Remember

KEYS = (
    *("epoch", "table", "members", "previous", "stable", "gone_back", "limit", "stopping"),
    *("checkpoint", "logged", "learned", "evictions", "failures"),
)
"""In this order they are written."""


class Recorded(Protocol):
    """A part of the controller that knows which of its fields a new controller needs."""

    def record(self) -> dict[str, Any]:
        """These fields, by their names in the record."""
        ...


def remember(*parts: Recorded) -> Remember:
    """The record with which a restarted controller resumes."""
    record = {key: value for part in parts for key, value in part.record().items()}
    return Remember({key: record[key] for key in KEYS})

"""A rule of a state machine: how a message is handled in a state, and which states may follow."""

from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any

from agileml.errors import InvalidTransition


class State(Enum):
    """A state of a machine. Its hash is its identity, as a machine looks its state up for every message."""

    __hash__ = object.__hash__


class Transition:
    """The method that handles a message, of the machine or of a `part` of it, and the other states that may follow."""

    def __init__(self, method: Callable[..., None], to: frozenset[State] = frozenset(), part: str = "") -> None:
        self.to = to
        name = method.__name__
        self.method: Callable[[object], Callable[[Any], None]] = attrgetter(f"{part}.{name}" if part else name)
        """Finds that method of a machine."""

    def check(self, name: str, before: State, after: State, message: object) -> None:
        """InvalidTransition if the state that follows is not in the table."""
        if after is not before and after not in self.to:
            raise InvalidTransition(f"{name} cannot go from {before.name} to {after.name} on {message!r}")

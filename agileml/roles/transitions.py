"""A rule of a state machine: how a message is handled in a state, and which states may follow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agileml.errors import InvalidTransition


@dataclass(frozen=True, slots=True)
class Transition:
    """`act` names the method that handles a message, of a `part` of the machine or of the machine itself.

    `to` are the states that may follow, besides the same one.
    """

    act: str
    to: frozenset[Enum] = frozenset()
    part: str | None = None

    def check(self, name: str, before: Enum, after: Enum, message: object) -> None:
        """InvalidTransition if the state that follows is not in the table."""
        if after is not before and after not in self.to:
            raise InvalidTransition(f"{name} cannot go from {before.name} to {after.name} on {message!r}")

"""What can be done to a running job, and who decides about it; the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Evict:
    """Machines are warned, and taken away after so many seconds."""

    names: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class KillNodes:
    """Machines are gone, without a word."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """New machines come."""

    count: int
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class KillController:
    """The controller's process is killed; it is started again at once."""


Act = Evict | KillNodes | Join | KillController


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that runs, as who takes them away sees it."""

    name: str
    reliable: bool
    warned: bool


class Script(Protocol):
    """Says what is to befall a job."""

    def due(self, clock: int, seconds: float, machines: Sequence[Machine]) -> Sequence[Act]:
        """What to do now.

        Asked after every finished clock and many times a second. `clock` is the last finished one, `seconds` the time
        since the job began; `machines` are in the order in which they came. Nothing is asked for twice.
        """
        ...


class Quiet:
    """Nothing ever happens."""

    def due(self, clock: int, seconds: float, machines: Sequence[Machine]) -> Sequence[Act]:  # noqa: ARG002
        """Nothing."""
        return ()

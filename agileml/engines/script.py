"""Faults that can be injected into a running job, and the script that chooses them; the same for every engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Evict:
    """Machines are warned, and taken away after `seconds`."""

    names: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class KillNodes:
    """Machines are taken away without warning."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Machines are added."""

    count: int
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class KillController:
    """The controller is killed; the job loop restarts it."""


Act = Evict | KillNodes | Join | KillController


@dataclass(frozen=True, slots=True)
class RunningMachine:
    """A running machine, as a script sees it."""

    name: str
    reliable: bool
    warned: bool


class Script(Protocol):
    """Decides which faults to inject into a job."""

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """The faults to inject now.

        Called after every finished clock and many times a second. `clock` is the last finished one, `seconds` the time
        since the job began; `machines` are in the order in which they joined. Each fault is returned once.
        """
        ...


class Quiet:
    """A script without faults."""

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        """No faults."""
        return ()

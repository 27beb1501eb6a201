"""What the machines of a run are for: training, or a command. The runner feeds it, and asks how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spotctl.machines.base import Machine, Payload
from spotctl.runlog.events import Event, Progressed, RentIntended
from spotctl.runlog.state import RunState


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the work is. `outcome` is set once it is over; `useless` are machines that do nothing any more.

    `told` is what has happened to the work since the last turn, for the log; `share` is how much of all the work is
    done, from 0 to 1, where that is known.
    """

    progress: Progressed | None = None
    outcome: str | None = None
    message: str = ""
    useless: tuple[str, ...] = ()
    told: tuple[Event, ...] = ()
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Earlier:
    """Runs of the same training that this one goes on from: their machines, of which none is left, and their clocks."""

    machines: tuple[str, ...] = ()
    clock: int = 0


NOTHING_EARLIER = Earlier()
"""Of a run that begins anew."""


class Workload(Protocol):
    """The work of one run. All it knows outlives its process, so that another may go on with it."""

    def payload(self, order: RentIntended) -> Payload | None:
        """What the machines of an order run; the same for the same order, whoever asks."""
        ...

    def secrets(self) -> Mapping[str, str]:
        """What goes to the machines and is written nowhere."""
        ...

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> Verdict:
        """Takes in which machines run, are warned and are gone; never waits for long."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What is to be kept about the work once it is over."""
        ...

    def close(self) -> None:
        """Ends what runs here."""
        ...

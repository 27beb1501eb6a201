"""`Workload`: the work of a run's machines, a training or a command, as the service loop drives it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spotctl.clouds.base import Machine, Payload
from spotctl.clouds.capabilities import MachineSupplies
from spotctl.log.events import Event, Progressed, RentIntended
from spotctl.log.state import RunState


@dataclass(frozen=True, slots=True)
class WorkReport:
    """How far the work is after a turn.

    `outcome` is set once the work is over. `idle_machines` will do nothing any more. `events` happened since the last
    turn, and go to the log. `share_done` is the finished share of all the work, from 0 to 1, where it is known.
    """

    progress: Progressed | None = None
    outcome: str | None = None
    message: str = ""
    idle_machines: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    share_done: float | None = None


class Workload(Protocol):
    """The work of one run. Its state outlives its process, so that another process can resume the run."""

    def payload(self, order: RentIntended) -> Payload | None:
        """The payload of an order's machines: the same for the same order in every process."""
        ...

    def supplies(self) -> MachineSupplies:
        """Supplies that the machines need besides their payload; never written where others can read them."""
        ...

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:
        """Reacts to machines that run, are warned or are gone. Returns within about a second."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """The facts about the work that the end of the run records."""
        ...

    def store(self, outcome: str) -> None:
        """Stores the results of a run with this outcome, once its machines are returned. May be called again.

        Raises TransferFailed if they cannot be stored now; its message says where they lie. Any other AgentError says
        that something is missing without which they are still of use.
        """
        ...

    def close(self) -> None:
        """Ends the workload's own processes on this computer."""
        ...

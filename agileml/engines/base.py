"""The contracts of an engine: what runs a job, the fleet of machines that it runs on, and the link
to its controller.

One loop (`JobLoop`) serves every engine. A new kind of machines is one more `MachineFleet` that
passes `tests/agileml/engines/fleet_suite.py`.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agileml.core.events import Iteration
from agileml.engines.chaos import Script
from agileml.job import Listener, Trained, TrainingJob
from agileml.protocol.messages import Warned
from agileml.runtime.output import Output
from agileml.runtime.results import Result


class Engine(Protocol):
    """Runs jobs on machines of one kind."""

    def run(self, job: TrainingJob, script: Script, listener: Listener, output: Output) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot.

        `script` says which faults are injected. `output` receives what processes of nodes print,
        and how they failed.
        """
        ...


_CAUSES: Mapping[int, str] = {
    signal.SIGKILL: " (SIGKILL: sent from outside, or by Linux when memory runs out)",
    signal.SIGSEGV: " (SIGSEGV: code in C crashed)",
    signal.SIGABRT: " (SIGABRT: the node hung, or code in C gave up)",
}
"""The probable cause of a signal that this computer does not explain."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A machine belongs to the fleet, and its node has been started. Whether the job admits it is
    not known yet.
    """

    name: str
    reliable: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """A role no longer runs, and nothing of it is left on its machine.

    `status` is how its process ended (negative: by this signal); None if the machine was taken away
    with it. `output` is the end of what it wrote, if it failed.
    """

    name: str
    status: int | None = None
    output: str = ""

    @property
    def how(self) -> str:
        """How its process ended, for people."""
        if self.status is None:
            return "was evicted"
        if self.status < 0:
            ended = f"was ended by signal {-self.status}{_CAUSES.get(-self.status, '')}"
        else:
            ended = f"ended with status {self.status}"
        if self.output:
            return f"{ended}: {self.output}"
        return ended


FleetEvent = Joined | Warned | Gone


class MachineFleet(Protocol):
    """The machines of one job: its controller and its nodes. Used by one thread."""

    @property
    def seconds(self) -> float:
        """Time since the fleet was created: wall-clock, or virtual in a simulation."""
        ...

    def start_controller(self) -> None:
        """Starts the controller and returns without waiting for it; also after the earlier one was
        reported gone.

        If it ends for whatever reason, `Gone("controller", ...)` is reported.
        """
        ...

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Adds a machine with a node under a name that was not used before, and returns without
        waiting for it.

        `Joined` is reported, and `Gone` when it ends, also if it could not start. Raises
        AgileMLError if this fleet cannot add machines.
        """
        ...

    def stop(self, name: str, notice: float | None = None) -> None:
        """Takes a machine away: at once, or after `notice` seconds, announced by a `Warned`.

        `Gone(name, None)` is reported once nothing of it is left; the node may end by itself
        before. Does nothing for a name that is gone or has been given notice.
        """
        ...

    def events(self) -> Sequence[FleetEvent]:
        """The events since the last call, in order, each of them once. Never waits.

        Raises AgileMLError if the fleet as a whole is lost.
        """
        ...

    def close(self) -> None:
        """Ends everything that still runs. Afterwards no process and no temporary file is left."""
        return


class ControllerLink(Protocol):
    """The job loop's connection to the controller, which is told everything again after a restart.

    By default there is nothing to tell, and nothing to wait for.
    """

    @property
    def last_clock(self) -> int:
        """The last finished clock."""
        ...

    @property
    def progress(self) -> int:
        """Grows whenever a clock is finished or workers report more work, also of a clock that is
        done again.
        """
        ...

    @property
    def result(self) -> Result | None:
        """The model and the counts, once the job is done."""
        ...

    def listen(self, longest: float) -> Iterator[Iteration]:
        """Newly finished clocks; waits up to `longest` seconds. Raises AgileMLError if the job
        cannot go on.
        """
        ...

    def settle(self, seconds: float) -> None:  # noqa: ARG002 - by default there is nothing to do
        """Waits, up to `seconds`, for what has arrived at the controller by now."""
        return

    def stop(self) -> None:
        """Ends the job with its last stable model."""
        ...

    # By default there is nothing to do.
    def warn(self, name: str, seconds: float) -> None:  # noqa: ARG002
        """A node's machine will be taken away after `seconds`."""
        return

    def lose(self, name: str) -> None:  # noqa: ARG002 - by default there is nothing to do
        """A node is gone, or its machine is."""
        return

    def forget(self, name: str) -> None:  # noqa: ARG002 - by default there is nothing to do
        """A node has left as the controller told it to."""
        return

"""A job whose machines are started by its caller: each runs `python -m agileml.join` and proves that it has the secret.

The job's folder holds everything that its processes share, and everything that a later `AttachedJob` needs to continue
the job: the role of a node, the controller's memory, checkpoints. The secret is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agileml.engines.base import EvictionWarning, FleetEvent, Gone
from agileml.engines.job_loop import JobLoop
from agileml.engines.local.fleet import LocalFleet
from agileml.engines.local.processes import Processes
from agileml.engines.script import Quiet
from agileml.errors import AgileMLError
from agileml.job import Listener, Trained, TrainingJob
from agileml.params.layout import Params
from agileml.runtime.attach import publish, published
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.job_shape import JobShape
from agileml.runtime.output import Output
from agileml.runtime.prepared_job import PreparedJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks, model_of


class AttachedFleet(LocalFleet):
    """Runs only the controller; what happens to the machines is reported by the caller who starts them."""

    def __init__(self, plan: PreparedJob, processes: Processes, rendezvous: FolderRendezvous) -> None:
        super().__init__(plan, processes, rendezvous)
        self._reported: list[FleetEvent] = []

    def start_node(self, name: str, *, reliable: bool) -> None:  # noqa: ARG002 - no fleet of its own
        """Refused: the caller starts the machines."""
        raise AgileMLError(f"{name}: the machines of an attached job are started by its caller")

    def report(self, event: FleetEvent) -> None:
        """Passes on what happened to a machine."""
        self._reported.append(event)

    def events(self) -> Sequence[FleetEvent]:
        """What was reported, and the end of a controller."""
        reported, self._reported = self._reported, []
        return [*reported, *super().events()]


class AttachedJob:
    """A job's controller, in a process of its own. Its caller reports what happens to the machines.

    When this process is gone, another AttachedJob on the same folder continues the job.
    """

    def __init__(
        self,
        job: TrainingJob,
        shape: JobShape,
        folder: Path,
        secret: bytes,
        listener: Listener,
        last_clock: int = 0,
        output: Output = lambda _: None,
    ) -> None:
        self._plan = PreparedJob(job, shape)
        rendezvous = FolderRendezvous(folder, secret)
        publish(self._plan.node_role(FolderRendezvous(folder, b"")), rendezvous.blobs)
        self._client = ControllerClient(rendezvous, Clocks(listener, last_clock), output, job.transport)
        self._fleet = AttachedFleet(self._plan, Processes(folder), rendezvous)
        self._loop = JobLoop(self._fleet, self._client, Quiet(), output, replaces=False)
        self._loop.start()

    def turn(self, longest: float) -> Trained | None:
        """Listens for at most this many seconds; the trained model once there is one.

        Raises an AgileMLError if the job cannot go on.
        """
        # What was reported since the last turn must not wait until this one ends.
        self._loop.handle_events()
        result = self._loop.turn(longest)
        return None if result is None else self._plan.trained(result)

    def warn(self, node: str, seconds: float) -> None:
        """A node's machine will be taken away after `seconds`."""
        self._fleet.report(EvictionWarning(node, seconds))

    def lose(self, node: str) -> None:
        """A node is gone, or its machine is."""
        self._fleet.report(Gone(node))

    def close(self) -> None:
        """Ends the controller; the folder stays."""
        self._client.close()
        self._fleet.close()


def newest_checkpoint(folder: Path) -> tuple[int, Params] | None:
    """The clock and the model of the newest complete checkpoint in a job's folder; None if there is none."""
    blobs = FolderRendezvous(folder, b"").blobs
    role, checkpoints = published(blobs), ModelCheckpoints(blobs)
    if role is None:
        return None
    partitions = role.job.settings.partitions
    clocks = checkpoints.complete(partitions)
    if not clocks:
        return None
    versions = [checkpoints.load(partition, clocks[0]) for partition in range(partitions)]
    return clocks[0], model_of(role.layout, versions)

"""A job whose nodes are started by others: they find its folder, prove that they know its secret, and join.

The folder holds all that a job's processes share, and all that whoever takes over needs: what nodes are told, the
controller's memory, checkpoints. The secret is not in it.
"""

from __future__ import annotations

from pathlib import Path

from agileml.engines.local.engine import controller_role, node_role, trained
from agileml.engines.local.fork_server import Gone
from agileml.engines.local.processes import Machines
from agileml.errors import Unrecoverable
from agileml.job import Job, Listener, Trained
from agileml.params.layout import Params
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.attach import publish, published
from agileml.runtime.checkpoints import Checkpoints
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.job_shape import JobShape
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks, model_of

RESTARTS = 5
"""How often the controller may be started again without a clock finished in between."""


class AttachedJob:
    """The controller of such a job, in a process of its own, and the client at which its machines are spoken for.

    Whoever makes a second one from the same folder, when the first is gone, goes on with the job.
    """

    def __init__(
        self, job: Job, shape: JobShape, folder: Path, secret: bytes, listener: Listener, last_clock: int = 0
    ) -> None:
        self._shape = shape
        rendezvous = FolderRendezvous(folder, secret)
        publish(node_role(job, shape, FolderRendezvous(folder, b"")), rendezvous.blobs)
        self._role = controller_role(job, shape, rendezvous)
        self._restarts = 0
        self._client = ControllerClient(rendezvous, Clocks(listener, last_clock))
        self._machines = Machines(folder)
        self._machines.start(CONTROLLER, self._role)

    def turn(self, longest: float) -> Trained | None:
        """Listens for so many seconds at most; the trained model once there is one. Raises if the job cannot go on."""
        for _ in self._client.listen(longest):
            self._restarts = 0
        if (result := self._client.result) is not None:
            return trained(result, self._shape)
        for gone in self._machines.gone():
            self._restart(gone)
        return None

    def warn(self, node: str, seconds: float) -> None:
        """A node's machine will be taken after so many seconds."""
        self._client.warn(node, seconds)

    def lose(self, node: str) -> None:
        """A node's machine is gone, or its process is."""
        self._client.lose(node)

    def close(self) -> None:
        """Ends the controller; the folder stays."""
        self._client.close()
        self._machines.__exit__(None, None, None)

    def _restart(self, gone: Gone) -> None:
        self._restarts += 1
        if self._restarts > RESTARTS:
            words = self._machines.last_words(CONTROLLER)
            raise Unrecoverable(f"the controller ended {self._restarts} times without a clock in between: {words}")
        self._machines.start(gone.name, self._role)


def newest_checkpoint(folder: Path) -> tuple[int, Params] | None:
    """The clock and the model of the newest complete checkpoint in a job's folder; None if there is none."""
    blobs = FolderRendezvous(folder, b"").blobs
    role, checkpoints = published(blobs), Checkpoints(blobs)
    if role is None:
        return None
    partitions = role.settings.partitions
    clocks = checkpoints.complete(partitions)
    if not clocks:
        return None
    versions = [checkpoints.load(partition, clocks[0]) for partition in range(partitions)]
    return clocks[0], model_of(role.layout, versions)

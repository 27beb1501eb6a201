"""Messages from nodes to the controller."""

from dataclasses import dataclass

from agileml.protocol.deciding import GradientSums
from agileml.protocol.partitions import Version


@dataclass(frozen=True, slots=True)
class Hello:
    """A node introduces itself, also to a restarted controller: its code, and each (partition, version) it holds."""

    node: str
    reliable: bool
    code: str
    epoch: int = 0
    stable: int = 0
    holds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Code and data are loaded; the node can join the epoch."""

    node: str


UNKNOWN_STEP = -1.0
"""The usual step of a node that has not finished one, or that is loading data."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The node is alive; its last progress was `stalled` seconds ago, and a step usually takes `usual_step` seconds.

    `unreported`: chunks that it has done for a clock that it has not finished, and that would be lost with it.
    Sent by the node's heartbeat process, whatever the node itself is doing.
    """

    node: str
    stalled: float = 0.0
    usual_step: float = 0.0
    unreported: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """Eviction warning: the node is taken away in `seconds`."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Restored:
    """The node has its partitions at the version that the epoch starts from."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A partition has a new version on this node; bytes were sent for it to workers and its backup since the last.

    `sums` are those of its contributions, in a job with backup workers.
    """

    node: str
    epoch: int
    partition: int
    clock: int
    backup: bool
    pulled_bytes: int = 0
    backup_bytes: int = 0
    sums: GradientSums | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that moved has arrived at this node."""

    node: str
    epoch: int
    partition: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A shard that moved has arrived at this node."""

    node: str
    epoch: int
    shard: int


@dataclass(frozen=True, slots=True)
class Routed:
    """The node uses this version of the table."""

    node: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Every peer has answered the node's end-of-life mark."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A node's work in a clock: chunks, seconds, bytes sent, and its part of the loss of the model before the clock."""

    node: str
    epoch: int
    clock: int
    chunks: int
    seconds: float
    pushed_bytes: int
    loss_sum: float
    loss_count: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The loss of the last version over a shard's part of the sample, as a sum, and the size of that part."""

    node: str
    epoch: int
    clock: int
    shard: int
    loss_sum: float
    loss_count: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of this partition is on disk."""

    node: str
    epoch: int
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Collected:
    """The answer to `Collect`."""

    node: str
    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Broken:
    """The job cannot continue; `message` says why."""

    node: str
    message: str

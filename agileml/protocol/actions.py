"""What a role wants done: the only way in which its decisions reach the world. Engines carry them out."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.protocol.messages import Version

CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver a message, after everything sent to the same receiver before."""

    to: str
    message: object


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a chunk of a shard: its items low..high-1 in this clock. The worker waits for the result."""

    epoch: int
    clock: int
    shard: int
    chunk: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Save:
    """Write a partition's version where it outlives the node."""

    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a partition's version back from there."""

    epoch: int
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Exit:
    """The node is done."""

    reason: str


Action = Send | Compute | Save | Fetch | Exit

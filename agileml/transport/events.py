"""What `Endpoint.poll` reports."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.transport.framing import Array, Json


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A message of a peer. Its arrays are the receiver's own; their common memory lasts as long as one of them."""

    peer: str
    kind: str
    header: Json
    arrays: list[Array]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Connected:
    """A link to a peer stands, and both sides are proven to belong to the job."""

    peer: str
    role: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The link to a peer is gone. What arrived whole was reported before; what was queued may not have arrived."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A connection attempt failed. `peer` is the one we tried to reach; None if an unknown process tried to reach us.

    `permanent` means that trying again cannot help: the two have different secrets or different versions of the code.
    """

    peer: str | None
    address: str
    reason: str
    permanent: bool = False


Event = Received | Connected | Lost | Rejected

"""Events that `Endpoint.poll` reports."""

from dataclasses import dataclass

from agileml.transport.framing import Array


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A message from a peer. The receiver owns its arrays; their shared memory lives as long as one of them."""

    peer: str
    kind: str
    header: bytes
    arrays: list[Array]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Connected:
    """A link to a peer is open, and both sides have proven that they belong to the job.

    `instance` differs when the peer is another process than before.
    """

    peer: str
    instance: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The link to a peer is closed. Complete messages were reported before; queued ones may not have arrived."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A connection attempt failed. `peer` is the one we tried to reach; None if an unknown process tried to reach us.

    `permanent` means that trying again cannot help: the two have different secrets or different versions of the code,
    or the name belongs to another process.
    `no_answer`: something accepted the connection, or may have, but did not answer in time.
    """

    peer: str | None
    address: str
    reason: str
    permanent: bool = False
    no_answer: bool = False


LinkEvent = Received | Connected | Lost | Rejected

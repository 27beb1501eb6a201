"""Partitions that move away from slow servers, as workers' measurements suggest."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agileml.core.placement import Footprint, may_serve
from agileml.policies.psld import PSLD, ServerPlace
from agileml.protocol.messages import ServerTimed


@dataclass(slots=True)
class ServerBalance:
    """The measurements so far, and where partitions are to be served because of them.

    `placed` is the server of each partition, empty without measurements; `more` transient nodes than usual may serve.
    """

    policy: PSLD = field(default_factory=PSLD)
    placed: tuple[str, ...] = ()
    more: int = 0
    _moving_since: float | None = None
    """When partitions began to move to faster servers, or the last of them arrived; None if none is moving."""

    def add(self, timed: ServerTimed) -> None:
        """Adds a measurement."""
        self.policy = self.policy.with_measurement(timed.server, timed.sent_bytes, timed.seconds)

    def propose(
        self, owners: Sequence[str], partition_bytes: Sequence[int], footprint: Footprint, stage: int, now: float
    ) -> ServerPlace | None:
        """Looks for faster servers; None if all partitions stay."""
        servers = may_serve(footprint, stage, len(partition_bytes), self.more)
        self.policy, place = self.policy.propose(owners, partition_bytes, servers)
        if place is not None:
            self.placed, self._moving_since = place.owners, now
            self.more += place.short
        return place

    def seconds_of_move(self, now: float, *, moving: bool) -> float | None:
        """The time that a partition took to arrive since the one before; None if it does not move for its server."""
        since = self._moving_since
        if since is None:
            return None
        self._moving_since = now if moving else None
        return now - since

"""How long a worker's exchanges with servers take: a push there and the requested values back.

The time that the server waited for others is the server's to say; clocks of machines are never compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agileml.params.deltas import nbytes
from agileml.protocol.actions import CONTROLLER, Action, Send
from agileml.protocol.messages import PartitionUpdate, ServerTimed, Snapshot


@dataclass(slots=True)
class Exchange:
    """A push whose values have not all come back."""

    began: float
    sent_bytes: int
    missing: set[int]
    seconds: float = 0.0


@dataclass(slots=True)
class ServerTimes:
    """The exchanges of one worker that are not complete, by server."""

    node: str
    out: list[Action]
    timer: Callable[[], float]
    _open: dict[str, Exchange] = field(default_factory=dict)

    def reset(self) -> None:
        """An epoch begins: what was asked for will not come."""
        self._open.clear()

    def pushed(self, owner: str, parts: Sequence[PartitionUpdate]) -> None:
        """A push is on its way that requests values of its partitions."""
        if owner == self.node:
            # This push crosses no network: its time would make a slow server look fast.
            return
        size = sum(nbytes(entry.delta) for part in parts for entry in part.entries)
        self._open[owner] = Exchange(self.timer(), size, {part.partition for part in parts})

    def received(self, owner: str, epoch: int, snapshot: Snapshot) -> None:
        """Values of a partition have arrived; reports the exchange if they were the last."""
        exchange = self._open.get(owner)
        if exchange is None or snapshot.waited is None or snapshot.partition not in exchange.missing:
            return
        exchange.missing.discard(snapshot.partition)
        exchange.sent_bytes += nbytes(snapshot.values)
        exchange.seconds = max(exchange.seconds, self.timer() - exchange.began - snapshot.waited)
        if not exchange.missing:
            del self._open[owner]
            timed = ServerTimed(self.node, epoch, owner, exchange.sent_bytes, max(0.0, exchange.seconds))
            self.out.append(Send(CONTROLLER, timed))

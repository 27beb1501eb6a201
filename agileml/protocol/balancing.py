"""Workers' measurements of servers, in jobs that balance the load of their servers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerTimed:
    """To the controller: a node's exchange with a server in a clock, there and back, without waiting for others."""

    node: str
    epoch: int
    server: str
    sent_bytes: int
    seconds: float

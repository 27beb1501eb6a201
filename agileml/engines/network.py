"""The simulated network: links that keep their order, network cards that take time, delays that differ."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from agileml.deltas import nbytes
from agileml.layout import state_bytes
from agileml.messages import Collected, Handover, Patch, Push, Restore, Snapshot

HEADER_BYTES = 64
"""What a message weighs besides its arrays."""


@dataclass(frozen=True, slots=True)
class Network:
    """Bytes a second of a node's card in each direction (0: no limit), seconds of latency, and random delay on top.

    `jitter` is the mean of an exponential delay, drawn for each message; messages of one link still keep their order.
    """

    bytes_per_second: float = 0.0
    latency: float = 0.0001
    jitter: float = 0.0


@dataclass(slots=True)
class Wire:
    """When messages arrive. Cards send and receive one message after the other."""

    network: Network
    rng: np.random.Generator
    _sending: dict[str, float] = field(default_factory=dict)
    _receiving: dict[str, float] = field(default_factory=dict)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)

    def arrival(self, sender: str, receiver: str, size: int, now: float) -> float:
        """When a message that is sent now has been received."""
        network = self.network
        at = now + network.latency
        if network.jitter:
            at += self.rng.exponential(network.jitter)
        if network.bytes_per_second and sender != receiver:
            seconds = size / network.bytes_per_second
            left = max(self._sending.get(sender, 0.0), now)
            self._sending[sender] = left + seconds
            begins = max(self._receiving.get(receiver, 0.0), left + at - now)
            at = begins + seconds
            self._receiving[receiver] = at
        link = (sender, receiver)
        at = max(at, self._last.get(link, 0.0))
        self._last[link] = at
        return at


def size_of(message: object) -> int:
    """Bytes of a message: the arrays it carries, and a header."""
    return HEADER_BYTES + _payload(message)


def _payload(message: object) -> int:
    match message:
        case Push():
            return sum(nbytes(entry.delta) for part in message.parts for entry in part.entries)
        case Snapshot():
            return state_bytes(message.state)
        case Patch():
            return nbytes(message.values)
        case Restore() | Collected():
            return state_bytes(message.version.state)
        case Handover():
            pending = sum(nbytes(entry.delta) for one in message.pending for entry in one.entries)
            return pending + sum(state_bytes(version.state) for version in message.versions)
    return 0

"""The simulated network: links that keep their order, network cards that take time, delays that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from typing import Any

import numpy as np

from agileml.params.deltas import nbytes
from agileml.params.layout import state_bytes
from agileml.protocol.messages import Collected, Handover, Patch, Push, Restore, Snapshot
from agileml.transport.buckets import Encoded

HEADER_BYTES = 64
"""Bytes of a message without its arrays."""


@dataclass(frozen=True, slots=True)
class MessageBucket:
    """A part of a message that is larger than a frame; `whole` is the message itself, for observers of a simulation."""

    frame: Encoded
    whole: object


def _of_push(message: Push) -> int:
    return sum([nbytes(entry.delta) for part in message.parts for entry in part.entries])


def _of_version(message: Restore | Collected) -> int:
    return state_bytes(message.version.state)


def _of_handover(message: Handover) -> int:
    pending = sum(nbytes(entry.delta) for push in message.pending for entry in push.entries)
    return pending + sum(state_bytes(version.state) for version in message.versions)


_PAYLOADS: dict[type, Callable[[Any], int]] = {
    Push: _of_push,
    Snapshot: lambda message: nbytes(message.values),
    Patch: lambda message: nbytes(message.values),
    Restore: _of_version,
    Collected: _of_version,
    Handover: _of_handover,
    MessageBucket: lambda bucket: sum(piece.nbytes for piece in bucket.frame[2]),
}


_OF_SERVERS = (Snapshot, Patch, Handover)


def size_of(message: object) -> int:
    """Bytes of a message: the arrays it carries, and a header."""
    payload = _PAYLOADS.get(type(message))
    return HEADER_BYTES + (payload(message) if payload else 0)


@dataclass(frozen=True, slots=True)
class Network:
    """The bandwidth of a node's card in bytes per second and direction (0: unlimited), latency, and random delay.

    `jitter` is the mean of an exponential delay, drawn for each message; messages of one link still keep their order.
    `skew` makes links differ: each multiplies its jitter by a log-normal factor with this standard deviation.
    `weigh` returns the bytes of a message, so that a simulated large job need not hold its arrays.
    """

    bytes_per_second: float = 0.0
    latency: float = 0.0001
    jitter: float = 0.0
    skew: float = 0.0
    weigh: Callable[[object], int] = size_of


@dataclass(slots=True)
class Wire:
    """Computes when messages arrive. A card sends one message at a time, and receives one at a time.

    `slow`: nodes whose server has only a fraction of the card's bandwidth, for pushes to it and what it sends.
    """

    network: Network
    rng: np.random.Generator
    slow: dict[str, float] = field(default_factory=dict)
    _sending: dict[str, float] = field(default_factory=dict)
    _receiving: dict[str, float] = field(default_factory=dict)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    _factors: dict[tuple[str, str], float] = field(default_factory=dict)

    def reached(self, sender: str, receiver: str, message: object, size: int, now: float) -> tuple[float, float]:
        """When a message of this size that is sent now starts to arrive, and how many seconds receiving it takes."""
        network = self.network
        at, seconds = now + network.latency, 0.0
        if network.jitter and sender != receiver:
            at += self.rng.exponential(network.jitter) * self._factor(sender, receiver)
        if network.bytes_per_second and sender != receiver:
            seconds = (size if network.weigh is size_of else network.weigh(message)) / network.bytes_per_second
            sends, receives = self._speeds(sender, receiver, message) if self.slow else (1.0, 1.0)
            left = self._sending.get(sender, now)
            if left > now:
                at += left - now
            else:
                left = now
            self._sending[sender] = left + seconds / sends
            seconds /= min(sends, receives)
        link = (sender, receiver)
        at = self._last[link] = max(at, self._last.get(link, at))
        return at, seconds

    def _speeds(self, sender: str, receiver: str, message: object) -> tuple[float, float]:
        """The speeds of the sender's and of the receiver's card for a message, relative to the network's."""
        kind = type(message.whole if isinstance(message, MessageBucket) else message)
        sends = self.slow.get(sender, 1.0) if kind in _OF_SERVERS else 1.0
        return sends, self.slow.get(receiver, 1.0) if kind is Push else 1.0

    def hold(self, link: tuple[str, str], until: float) -> None:
        """Holds up what is sent on a link from now on until then."""
        self._last[link] = max(self._last.get(link, 0.0), until)

    def received(self, receiver: str, seconds: float, now: float) -> float:
        """When a message that starts to arrive now has been received."""
        done = max(self._receiving.get(receiver, 0.0), now) + seconds
        self._receiving[receiver] = done
        return done

    def _factor(self, sender: str, receiver: str) -> float:
        if not self.network.skew:
            return 1.0
        if (sender, receiver) not in self._factors:
            self._factors[sender, receiver] = exp(self.network.skew * self.rng.standard_normal())
        return self._factors[sender, receiver]

"""Endpoints of one process that talk to each other, driven in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from agileml.transport import Address, Endpoint, Identity, LinkEvent, TransportSettings, UnixAddress

SECRET = b"a secret that the job's nodes share"
T = TypeVar("T")
PATIENCE = 2000
"""Turns of 5 ms until a test gives up."""


class Clock:
    """Time that a test can let pass at once."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.passed


@dataclass
class Meeting:
    """Endpoints, and everything that each of them has reported."""

    folder: Path
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    events: dict[str, list[LinkEvent]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        settings: TransportSettings | None = None,
        *,
        secret: bytes = SECRET,
        clock: Callable[[], float] | None = None,
        version: str = "1",
    ) -> Endpoint:
        identity = Identity(name, "node", version)
        endpoint = (
            Endpoint(identity, secret, settings, clock=clock)
            if clock
            else Endpoint(identity, secret, settings)
        )
        self.endpoints[name] = endpoint
        self.events[name] = []
        return endpoint

    def address(self, name: str) -> UnixAddress:
        return UnixAddress(str(self.folder / f"{name}.sock"))

    def listening(
        self, name: str, settings: TransportSettings | None = None, at: Address | None = None
    ) -> Address:
        return self.add(name, settings).listen(at or self.address(name))

    def pair(self, settings: TransportSettings | None = None) -> tuple[Endpoint, Endpoint]:
        """Two that are linked: "a", which listens, and "b"."""
        a, b = self.add("a", settings), self.add("b", settings)
        b.connect("a", a.listen(self.address("a")))
        self.until(lambda: "b" in a.peers and "a" in b.peers)
        return a, b

    def turn(self, wait: float = 0.005) -> None:
        for name, endpoint in self.endpoints.items():
            self.events[name] += endpoint.poll(wait / len(self.endpoints))

    def until(self, done: Callable[[], bool], wait: float = 0.005) -> None:
        for _ in range(PATIENCE if wait else 100 * PATIENCE):
            if done():
                return
            self.turn(wait)
        reported = {
            name: [str(event)[:200] for event in events[-5:]]
            for name, events in self.events.items()
        }
        raise AssertionError(f"it did not come about; what was reported last: {reported}")

    def of(self, name: str, kind: type[T]) -> list[T]:
        return [event for event in self.events[name] if isinstance(event, kind)]

    def first(self, name: str, kind: type[T]) -> T:
        """Waits for an event of a kind."""
        self.until(lambda: bool(self.of(name, kind)))
        return self.of(name, kind)[0]

    def close(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.close()

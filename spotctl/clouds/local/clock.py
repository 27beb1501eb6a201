"""The market's clock: a file from which every process on this computer reads the same time.

Market time is the time at an anchor plus the time since then on the computer's monotonic clock, times a speed. The
monotonic clock cannot be set and stops while the computer sleeps, so a suspended night does not evict every machine.
After a reboot the market continues from the last moment that was noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.lease.lease_files import boot_id

_NANOS_PER_MICRO = 1000
_NOTE_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `monotonic_ns` of one boot it was `market` (microseconds); `seen` is the latest market time that was noted."""

    market: int
    monotonic_ns: int
    speed: float
    boot: str
    seen: int

    def time(self, monotonic_ns: int, boot: str) -> int:
        """The market's time. After a reboot the anchor is useless, and market time stops."""
        elapsed = monotonic_ns - self.monotonic_ns
        if boot != self.boot or elapsed < 0:
            return max(self.seen, self.market)
        return self.market + int(elapsed * self.speed / _NANOS_PER_MICRO)


class MarketClock:
    """Reads the file. The callers of `start` and `note` hold the provider's lock, so that there is one writer."""

    def __init__(
        self, path: Path, monotonic_ns: Callable[[], int] = time.monotonic_ns, boot: Callable[[], str] | None = None
    ) -> None:
        self.path = path
        self._monotonic_ns, self._boot = monotonic_ns, boot or boot_id
        self._anchor: Watched[Anchor] = Watched(path, _anchor)

    @property
    def started(self) -> bool:
        """Whether there is a market time."""
        return self._anchor.value() is not None

    @property
    def speed(self) -> float:
        """Seconds of market time per second."""
        return self._known().speed

    def now(self) -> int:
        """The market's time in microseconds."""
        return self._known().time(self._monotonic_ns(), self._boot())

    def seconds_until(self, moment: int) -> float:
        """Seconds of this computer until the market reaches a moment; negative if it already has."""
        return (moment - self.now()) / self.speed / 1e6

    def start(self, market: int, speed: float) -> None:
        replace_json(self.path, asdict(Anchor(market, self._monotonic_ns(), speed, self._boot(), market)), lasting=True)

    def note(self) -> None:
        """Saves the market's time in case the computer reboots; after a reboot, the clock continues from there."""
        anchor, now = self._known(), self.now()
        if self._boot() != anchor.boot or self._monotonic_ns() < anchor.monotonic_ns:
            self.start(now, anchor.speed)
        elif now - anchor.seen >= _NOTE_EVERY_SECONDS * anchor.speed * 1e6:
            replace_json(self.path, asdict(anchor) | {"seen": now}, lasting=True)

    def _known(self) -> Anchor:
        anchor = self._anchor.value()
        if anchor is None:
            raise BrokenProtocol(f"{self.path}: there is no market time yet; start the market first (spotctl launch)")
        return anchor


def _anchor(values: dict[str, Any]) -> Anchor:
    return Anchor(
        int(values["market"]),
        int(values["monotonic_ns"]),
        float(values["speed"]),
        str(values["boot"]),
        int(values["seen"]),
    )

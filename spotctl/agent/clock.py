"""The market's clock: a file from which every process of this computer reads the same time.

Market time is what it was at an anchor, plus the time since on the computer's monotonic clock, times a speed. That
clock is set by nobody and stands still while the computer sleeps, so that a night's suspension does not evict
everything. After a restart of the computer the market goes on from the last moment that was noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json

_NANOS_PER_MICRO = 1000
_NOTED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `monotonic_ns` of one boot it was `market` (microseconds); `seen` is the latest market time that was noted."""

    market: int
    monotonic_ns: int
    speed: float
    boot: str
    seen: int

    def time(self, monotonic_ns: int, boot: str) -> int:
        """The market's time. Without the anchor's boot there is nothing to count from, and it stands still."""
        elapsed = monotonic_ns - self.monotonic_ns
        if boot != self.boot or elapsed < 0:
            return max(self.seen, self.market)
        return self.market + int(elapsed * self.speed / _NANOS_PER_MICRO)


class MarketClock:
    """Reads the file; whoever writes it (`start`, `note`) sees to it that nobody else does at the same time."""

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
        """Seconds of market time in a second."""
        return self._known().speed

    def now(self) -> int:
        """The market's time in microseconds."""
        return self._known().time(self._monotonic_ns(), self._boot())

    def seconds_until(self, moment: int) -> float:
        """How long it is on anybody's watch until the market reaches a moment; below 0 where it has."""
        return (moment - self.now()) / self.speed / 1e6

    def start(self, market: int, speed: float) -> None:
        """From now on it is this time, and time passes at this speed."""
        replace_json(self.path, asdict(Anchor(market, self._monotonic_ns(), speed, self._boot(), market)), lasting=True)

    def note(self) -> None:
        """Notes the time for the case that the computer restarts; after a restart, lets it go on."""
        anchor, now = self._known(), self.now()
        if self._boot() != anchor.boot or self._monotonic_ns() < anchor.monotonic_ns:
            self.start(now, anchor.speed)
        elif now - anchor.seen >= _NOTED_SECONDS * anchor.speed * 1e6:
            replace_json(self.path, asdict(anchor) | {"seen": now}, lasting=True)

    def _known(self) -> Anchor:
        anchor = self._anchor.value()
        if anchor is None:
            raise BrokenProtocol(f"{self.path}: there is no market time yet; begin the market first")
        return anchor


@cache
def boot_id() -> str:
    """Which run of the machine this is, so that times of an earlier one are not taken for times of this one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Elsewhere than on Linux a folder for the lease has to be one that a reboot empties.
        return ""


def _anchor(values: dict[str, Any]) -> Anchor:
    return Anchor(
        int(values["market"]),
        int(values["monotonic_ns"]),
        float(values["speed"]),
        str(values["boot"]),
        int(values["seen"]),
    )

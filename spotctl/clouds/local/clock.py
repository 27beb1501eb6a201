"""The market's clock: a file from which every process on this computer reads the same time.

Market time is the time at an anchor plus the time since then on the computer's monotonic clock,
times a speed. The monotonic clock cannot be set and stops while the computer sleeps, so a suspended
night does not evict every machine. After a reboot the market continues from the last moment that
was noted.

The clock stands still for as long as the computer has kept the market's machines from their work
(`delays`). A delay is known once it is over, so the clock stands afterwards: `standing.json` says
from when until when.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.lease.lease_files import boot_id

_NANOS_PER_MICRO = 1000
_HOUR = 3600 * 10**6
_NOTE_EVERY_SECONDS = 1.0

MAX_STANDING_SECONDS = 300
"""How long the clock stands in an hour of market time at most."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `monotonic_ns` of one boot it was `market` (microseconds); `seen` is the latest market
    time that was noted.
    """

    market: int
    monotonic_ns: int
    speed: float
    boot: str
    seen: int

    def time(self, monotonic_ns: int, boot: str, stood_ns: int) -> int:
        """The market's time. After a reboot the anchor is useless, and market time stops."""
        elapsed = monotonic_ns - self.monotonic_ns
        if boot != self.boot or elapsed < 0:
            return max(self.seen, self.market)
        return self.market + int((elapsed - stood_ns) * self.speed / _NANOS_PER_MICRO)


@dataclass(frozen=True, slots=True)
class Standing:
    """How long the clock has stood since it was set to the `anchor`: `stood_ns` until `since`, and
    from then `until`.

    `looked` is when delays were last measured. In the `hour` of market time the clock was made to
    stand for `hour_ns`. Other times are on the computer's monotonic clock.
    """

    anchor: int
    looked: int
    stood_ns: int = 0
    since: int = 0
    until: int = 0
    hour: int = 0
    hour_ns: int = 0

    def by(self, monotonic_ns: int) -> int:
        """How long the clock has stood by now."""
        return self.stood_ns + max(min(monotonic_ns, self.until) - self.since, 0)


class MarketClock:
    """Reads the files. The callers of `start` and `note` hold the provider's lock, so that there is
    one writer.
    """

    def __init__(
        self,
        path: Path,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        boot: Callable[[], str] | None = None,
    ) -> None:
        self.path = path
        self._monotonic_ns, self._boot = monotonic_ns, boot or boot_id
        self._anchor: Watched[Anchor] = Watched(path, lambda values: Anchor(**values))
        self._standing = Watched(path.with_name("standing.json"), lambda values: Standing(**values))
        self._latest = 0, 0

    @property
    def started(self) -> bool:
        """Whether there is a market time."""
        return self._anchor.value() is not None

    @property
    def speed(self) -> float:
        """Seconds of market time per second."""
        return self._known().speed

    def now(self) -> int:
        """The market's time in microseconds. It does not go back, also when it was just found to
        have stood.
        """
        anchor, at = self._known(), self._monotonic_ns()
        now = anchor.time(at, self._boot(), self.standing.by(at))
        which, latest = self._latest
        self._latest = (
            anchor.monotonic_ns,
            max(now, latest) if which == anchor.monotonic_ns else now,
        )
        return self._latest[1]

    @property
    def standing(self) -> Standing:
        """How long the clock has stood."""
        anchor, known = self._known(), self._standing.value()
        return (
            known
            if known is not None and known.anchor == anchor.monotonic_ns
            else Standing(anchor.monotonic_ns, 0)
        )

    def seconds(self) -> float:
        """Seconds of this computer in which the clock has run, from an arbitrary moment on."""
        at = self._monotonic_ns()
        return (at - self.standing.by(at)) / 1e9

    def delay(self, delay_ns: int) -> None:
        """Has the clock stand for a delay that ends now. One process at a time calls this."""
        before, now, hour = self.standing, self._monotonic_ns(), self.now() // _HOUR
        stood_ns, since = before.by(now), now
        if now < before.until:
            stood_ns, since = before.stood_ns, before.since
        in_hour = before.hour_ns if hour == before.hour else 0
        added = min(delay_ns, MAX_STANDING_SECONDS * 10**9 - in_hour)
        until = max(before.until, now) + added
        standing = Standing(before.anchor, now, stood_ns, since, until, hour, in_hour + added)
        replace_json(self.path.with_name("standing.json"), asdict(standing))

    def seconds_until(self, moment: int) -> float:
        """Seconds of this computer until the market reaches a moment; negative if it already
        has."""
        return (moment - self.now()) / self.speed / 1e6

    def start(self, market: int, speed: float) -> None:
        replace_json(
            self.path,
            asdict(Anchor(market, self._monotonic_ns(), speed, self._boot(), market)),
            lasting=True,
        )

    def note(self) -> None:
        """Saves the market's time in case the computer reboots; after a reboot, the clock continues
        from there.
        """
        anchor, now = self._known(), self.now()
        if self._boot() != anchor.boot or self._monotonic_ns() < anchor.monotonic_ns:
            self.start(now, anchor.speed)
        elif now - anchor.seen >= _NOTE_EVERY_SECONDS * anchor.speed * 1e6:
            replace_json(self.path, asdict(anchor) | {"seen": now}, lasting=True)

    def _known(self) -> Anchor:
        anchor = self._anchor.value()
        if anchor is None:
            cure = "start the market first (spotctl launch)"
            raise BrokenProtocol(f"{self.path}: there is no market time yet; {cure}")
        return anchor

"""How long spot machines last: what a market granted, refused and evicted, how long machines lived
there, and the interruption figures that clouds publish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pricing_data.errors import BadInput
from pricing_data.market import Market

if TYPE_CHECKING:
    from pricing_data.series import Ints

Ending = Literal["", "evicted", "warned", "returned", "refused"]
"""How a span ended: the machines were evicted, were held when their eviction was announced, or were
returned; or the request was refused. Empty: unknown, or the observation just stopped."""


def run_of_job(job: str) -> str:
    """The end of the source of spans that a run of a job observed."""
    return f" of {job}"


@dataclass(frozen=True, slots=True, order=True)
class AvailabilitySpan:
    """From `since` to `until`, `machines` of the `wanted` spot machines of a market were held or
    available.

    A request that was refused is a span without length. `source` says who observed: a run, or a
    file.
    """

    market: Market
    since: int
    until: int
    machines: int
    wanted: int
    ended: Ending
    source: str

    def __post_init__(self) -> None:
        if self.until < self.since:
            raise BadInput(f"{self.market}: availability ends at {self.until}, before it begins")
        if not 0 <= self.machines <= self.wanted or not self.wanted:
            raise BadInput(
                f"{self.market}: machines is {self.machines} of {self.wanted} wanted; it must be "
                "from 0 to wanted"
            )
        if self.ended not in get_args(Ending):
            raise BadInput(
                f"{self.market}: {self.ended!r} is not one of {', '.join(get_args(Ending))}"
            )

    @property
    def up(self) -> bool:
        """Whether at least half of the wanted machines were available."""
        return 2 * self.machines >= self.wanted

    def before(self, at: int) -> AvailabilitySpan | None:
        """The part that was known at a moment; None if nothing was."""
        if self.since > at:
            return None
        if self.until <= at:
            return self
        return AvailabilitySpan(
            self.market, self.since, at, self.machines, self.wanted, "", self.source
        )


Measure = Literal["monthly-bucket", "preemption-rate", "eviction-rate", "placement-score", "saving"]
"""`monthly-bucket`: AWS Spot Advisor, share of machines interrupted in the last month, as a band
(usable only as a ranking: how long those machines ran is unknown). `preemption-rate`: GCP capacity
history, preempted share of an interval. `eviction-rate`: Azure, share of machines evicted per hour
over the last weeks, as a band. `placement-score`: AWS, likelihood that a request is filled, from 1
to 10; here more is better. `saving`: AWS Spot Advisor, how far spot prices are below the on-demand
price, as a share."""

_LARGEST = {
    "monthly-bucket": 1.0,
    "preemption-rate": 1.0,
    "eviction-rate": 1.0,
    "placement-score": 10.0,
    "saving": 1.0,
}


@dataclass(frozen=True, slots=True, order=True)
class Interruption:
    """One published figure of one market as of a time: from `low` to `high`, which may be equal."""

    market: Market
    measure: Measure
    as_of: int
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if self.measure not in _LARGEST:
            raise BadInput(
                f"{self.market}: measure {self.measure!r} is not one of {', '.join(_LARGEST)}"
            )
        if not 0.0 <= self.low <= self.high <= _LARGEST[self.measure]:
            raise BadInput(
                f"{self.market}: {self.measure} {self.low:g} to {self.high:g} is not a band between"
                f" 0 and {_LARGEST[self.measure]:g}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityTrace:
    """The number of machines that were up at each tick; ticks are `gap_seconds` apart. `start` is
    None where a record has no times."""

    name: str
    gap_seconds: int
    up: Ints
    start: int | None = None

    def __post_init__(self) -> None:
        if self.gap_seconds <= 0:
            raise BadInput(
                f"availability trace {self.name}: gap_seconds is {self.gap_seconds}; it must be "
                "above 0"
            )
        if self.up.size == 0 or int(self.up.min()) < 0:
            raise BadInput(
                f"availability trace {self.name}: it needs at least one tick, and no count below 0"
            )

        self.up.setflags(write=False)

    def __len__(self) -> int:
        return int(self.up.size)

    @property
    def wanted(self) -> int:
        """The most machines that were ever up, taken as the number requested."""
        return int(self.up.max())

    @property
    def preemptions(self) -> int:
        """The number of preemptions; one that was replaced within a tick is not counted."""
        after = self.up[1:]
        before = self.up[:-1]
        steps = after - before
        return int(-steps[steps < 0].sum())

    @property
    def machine_hours(self) -> float:
        running = float(self.up[:-1].sum()) * self.gap_seconds
        return running / 3600


@dataclass(frozen=True, slots=True, order=True)
class Lifetime:
    """One machine's lifetime. It is censored (`preempted` is False) if its user ended it or it was
    still running.
    """

    cloud: str
    zone: str
    instance_type: str
    start: int
    seconds: float
    preempted: bool

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise BadInput(
                f"lifetime in {self.cloud}/{self.zone}: {self.seconds:g} seconds; it must be at "
                "least 0"
            )

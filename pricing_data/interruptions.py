"""What clouds publish about how often they take machines back, as they publish it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pricing_data.errors import BadInput
from pricing_data.market import Market

Measure = Literal["monthly-bucket", "preemption-rate", "eviction-rate", "placement-score"]
"""`monthly-bucket`: AWS Spot Advisor, share of machines interrupted in the last month, as a band (an ordering: the
exposure behind it is unknown). `preemption-rate`: GCP capacity history, preempted share of an interval.
`eviction-rate`: Azure, share of machines evicted per hour over the last weeks, as a band.
`placement-score`: AWS, 1 (unlikely) to 10 (likely) that a request is filled; the only one where more is better."""

_LARGEST = {"monthly-bucket": 1.0, "preemption-rate": 1.0, "eviction-rate": 1.0, "placement-score": 10.0}


@dataclass(frozen=True, slots=True, order=True)
class Interruption:
    """One published figure about one market: between `low` and `high` (equal where it is a point) as of a time."""

    market: Market
    measure: Measure
    as_of: int
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if self.measure not in _LARGEST:
            raise BadInput(f"{self.market}: measure {self.measure!r} is none of {', '.join(_LARGEST)}")
        if not 0.0 <= self.low <= self.high <= _LARGEST[self.measure]:
            raise BadInput(
                f"{self.market}: {self.measure} {self.low:g} to {self.high:g} is not a band within"
                f" 0 and {_LARGEST[self.measure]:g}"
            )

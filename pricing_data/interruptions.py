"""Interruption figures as the clouds publish them."""

from dataclasses import dataclass
from typing import Literal

from pricing_data.errors import BadInput
from pricing_data.market import Market

Measure = Literal["monthly-bucket", "preemption-rate", "eviction-rate", "placement-score", "saving"]
"""`monthly-bucket`: AWS Spot Advisor, share of machines interrupted in the last month, as a band (usable only as
a ranking: how long those machines ran is unknown). `preemption-rate`: GCP capacity history, preempted share of an
interval.
`eviction-rate`: Azure, share of machines evicted per hour over the last weeks, as a band.
`placement-score`: AWS, likelihood that a request is filled, from 1 to 10; here more is better.
`saving`: AWS Spot Advisor, how far spot prices are below the on-demand price, as a share."""

_LARGEST = {"monthly-bucket": 1.0, "preemption-rate": 1.0, "eviction-rate": 1.0, "placement-score": 10.0, "saving": 1.0}


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
            raise BadInput(f"{self.market}: measure {self.measure!r} is not one of {', '.join(_LARGEST)}")
        if not 0.0 <= self.low <= self.high <= _LARGEST[self.measure]:
            raise BadInput(
                f"{self.market}: {self.measure} {self.low:g} to {self.high:g} is not a band between"
                f" 0 and {_LARGEST[self.measure]:g}"
            )

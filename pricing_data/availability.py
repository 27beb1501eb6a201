"""Observed availability: what a market granted, refused and evicted, and how long machines or pings lasted there."""

from dataclasses import dataclass
from typing import Literal, get_args

from pricing_data.errors import BadInput
from pricing_data.market import Market

Ending = Literal["", "evicted", "warned", "returned", "refused"]
"""How a span ended: the machines were evicted, were held when their eviction was announced, or were returned; or the
request was refused. Empty: unknown, or the observation just stopped."""


def run_of_job(job: str) -> str:
    """The end of the source of spans that a run of a job observed."""
    return f" of {job}"


@dataclass(frozen=True, slots=True, order=True)
class AvailabilitySpan:
    """From `since` to `until`, `machines` of the `wanted` spot machines of a market were held or available.

    A request that was refused is a span without length. `source` says who observed: a run, or a file.
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
                f"{self.market}: machines is {self.machines} of {self.wanted} wanted; it must be from 0 to wanted"
            )
        if self.ended not in get_args(Ending):
            raise BadInput(f"{self.market}: {self.ended!r} is not one of {', '.join(get_args(Ending))}")

    @property
    def up(self) -> bool:
        """Whether at least half of the wanted machines were available."""
        return 2 * self.machines >= self.wanted

    def before(self, at: int) -> "AvailabilitySpan | None":
        """The part that was known at a moment; None if nothing was."""
        if self.since > at:
            return None
        if self.until <= at:
            return self
        return AvailabilitySpan(self.market, self.since, at, self.machines, self.wanted, "", self.source)

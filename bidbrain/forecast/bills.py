"""The cost of a replayed run: the bill of each market, with the moves of its checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bidbrain.billing import End, Life, usd
from bidbrain.forecast.values import ForecastJob
from bidbrain.replay.run import Run, Tenure
from bidbrain.replay.spending import bill_of_machine
from bidbrain.strategies.base import Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR


@dataclass(frozen=True, slots=True)
class MarketBill:
    """The cost of one market's machines, and the most that were bought together."""

    market: Market
    machines: int
    usd: float


def bills_of(run: Run, job: ForecastJob, histories: Mapping[Market, PriceSeries]) -> tuple[MarketBill, ...]:
    """The bill of each market by its cloud's rule, with moves of the checkpoint. No other job takes over what is left
    of an hour."""
    ended = (run.job.limit if run.end is None else run.end) + job.times.ending
    bills: dict[Market, MarketBill] = {}
    held = [(tenure.rent, _life(tenure, ended, job.at_end)) for tenure in run.tenures]
    if job.reliable is not None:
        held.append((job.reliable, Life(run.job.start, ended, job.at_end)))
    for rent, life in held:
        market = rent.offer.market
        dollars = _bill(job, histories, rent, life)
        before = bills.get(market, MarketBill(market, 0, 0.0))
        bills[market] = MarketBill(market, max(before.machines, rent.machines), before.usd + dollars)
    for origin, target in pairwise(_places(run)):
        # The region that sends a checkpoint bills it.
        bills[origin] = replace(bills[origin], usd=bills[origin].usd + job.moving(origin, target))
    return tuple(bills.values())


def _bill(job: ForecastJob, histories: Mapping[Market, PriceSeries], rent: Rent, life: Life) -> float:
    """The dollars that the machines of a purchase cost over a life."""
    return usd(bill_of_machine(rent, life, job.billing, histories).amount) * rent.machines


def _places(run: Run) -> list[Market]:
    """Where the job worked, in order."""
    worked = [tenure for tenure in run.tenures if tenure.ready < tenure.end]
    return [tenure.rent.offer.market for tenure in sorted(worked, key=lambda tenure: tenure.ready)]


def _life(tenure: Tenure, ended: int, at_end: End) -> Life:
    """Machines that are held at the end of the job end then."""
    return Life(tenure.start, max(ended, tenure.end), at_end) if tenure.ended is End.HANDED_ON else tenure.life


@dataclass(slots=True)
class CostsMore:
    """Whether a run has cost more than some dollars: once an hour, as if all its machines were evicted then."""

    job: ForecastJob
    histories: Mapping[Market, PriceSeries]
    usd: float
    _next: int = 0
    _counted: int = 0
    _paid: float = 0.0

    def __call__(self, now: int, ended: Sequence[Tenure], held: Iterable[Tenure]) -> bool:
        """Whether the run has cost more by now, with the machines that have ended and those that are held."""
        if now < self._next:
            return False
        self._next = now + HOUR
        self._paid += sum(map(self._usd, ended[self._counted :]))
        self._counted = len(ended)
        return self._paid + sum(map(self._usd, held)) > self.usd

    def _usd(self, tenure: Tenure) -> float:
        return _bill(self.job, self.histories, tenure.rent, tenure.life)

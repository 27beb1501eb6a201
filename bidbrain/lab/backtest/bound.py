"""The least that a job can cost with perfect foresight: in a backtest, and until a deadline on an
availability trace.

`bound` is the least of a backtest's job without refunds. With refunds perfect foresight costs
nothing, because every hour could be one that ends in an eviction; so the bound is compared with a
strategy's cost with its refunds added back. The bound may not be attainable:

- Work done at a moment was paid at the price of the start of some hour that contains it, so its
  unit price is at least the lowest of the hour before, of the cheapest market, or of the baseline
  on demand.
- No work is done in a market that has no machines at the moment.
- At most `most_nu` works at once, from one start-up after the beginning on. The cheapest moments
  are filled first.
- To finish by T some moment needs at least work / (T - start-up) machines' worth, and all of them
  are paid while they start up.

The cost is minimized over the end T, up to twice the baseline's time. The reliable machines are
left out: they do no work, and not every strategy holds them.

The optimum until a deadline (`cheapest`) is exact. Let a schedule hold machines for N ticks, O of
them on demand, and enter machines k times. Its work is N ticks less k delays (an entry shorter than
the delay does none, and no cheapest schedule has one), so it needs at least N(k) = ceil((work + k
delay) / tick) ticks and costs N + (ratio - 1) O. With on-demand more expensive than spot, three
exchanges, none of which adds an entry or cost, bring every cheapest schedule into a simple form:

- An on-demand tick within an up spell that is also rented on spot becomes a spot tick: on-demand
  and spot never share an up spell.
- All on-demand ticks are worth the same, so they can be moved between blocks that have been
  entered: only the number of ticks that the blocks could cover matters, their capacity C, and O is
  any number up to it.
- Likewise spot ticks can be moved until every up spell in use is used whole, except where the work
  ends.

So spells are whole, and a schedule is feasible when spot ticks S and capacity C of its entered
blocks cover N(k). The dynamic program goes through the spells and keeps, for each (k, C) and
machine held at the boundary, the largest S. The cheapest schedule with k entries then pays N(k) +
(ratio - 1) max(0, N(k) - S).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.eviction.crossing import range_extremes
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Offer
from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR

_CELLS = 48
LONGEST_RATIO = 2.0
"""Longest run time considered, as a multiple of the baseline's."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitPrices:
    """The prices of a unit of work in a zone: at each step the markets from cheap to expensive, and
    on demand.

    Row i holds from `times[i]` on: `prices` by place (nano-dollars per hour and nu), and `nu` at
    each of them.
    """

    times: Ints
    prices: Floats
    nu: Floats

    @classmethod
    def of(
        cls,
        histories: Sequence[PriceSeries],
        offers: Sequence[Offer],
        baseline: Offer,
        market: MarketReplay,
        depth: int | None,
    ) -> "UnitPrices":
        """The prices of a zone's markets with at most `depth` machines each; if None, only the
        cheapest counts.
        """
        nu_of = {offer.market: offer.nu for offer in offers}
        known = [series for series in histories if series.market in nu_of]
        steps = [_lowest_where_open(series, market.openings(series.market)) for series in known]
        moments = np.concatenate([at for at, _ in steps])
        times = np.unique(moments)
        columns = [np.full(times.size, baseline.on_demand / baseline.nu)]

        for (at, lowest), series in zip(steps, known, strict=True):
            place = np.searchsorted(at, times, side="right") - 1
            per_nu = lowest[np.maximum(place, 0)] / nu_of[series.market]
            columns.append(np.where(place >= 0, per_nu, np.inf))

        prices = np.stack(columns, axis=1)
        if depth is None:
            unlimited = np.full((times.size, 1), np.inf)
            return cls(times, prices.min(axis=1, keepdims=True), unlimited)

        of_market = (depth * nu_of[series.market] for series in known)
        most = [np.inf, *of_market]
        order = np.argsort(prices, axis=1, kind="stable")
        in_order = np.take_along_axis(prices, order, axis=1)
        most_in_order = np.array(most)[order]
        return cls(times, in_order, most_in_order)

    def within(self, start: int, end: int) -> tuple[Floats, Floats, Floats]:
        """Lengths of the steps between two moments, with their prices and nu by place."""
        place = int(np.searchsorted(self.times, start, side="right"))
        first = max(place - 1, 0)
        after = int(np.searchsorted(self.times, end, side="left"))
        inner = self.times[first + 1 : after]
        edges = np.concatenate(([start], inner, [end])).astype(float)
        prices = self.prices[first:after]
        nu = self.nu[first:after]
        return np.diff(edges), prices, nu


def least_cost(
    job: ReplayedJob, unit: UnitPrices, startup: int, baseline_time: int
) -> tuple[float, int]:
    """The bound of one job, in nano-dollars per hour times microseconds, and the end at which it is
    reached.

    An end between two grid moments is bounded by the later one, which only adds choices.
    """
    soonest = startup + job.work / job.most_nu
    ends = np.linspace(soonest, LONGEST_RATIO * baseline_time, _CELLS + 1)
    costs = cost_by_end(job, unit, startup, ends[1:])
    best = int(np.argmin(costs))
    end = int(ends[best + 1])
    return float(costs[best]), job.start + end


def cost_by_end(job: ReplayedJob, unit: UnitPrices, startup: int, ends: Floats) -> Floats:
    """The least cost of doing a job's work by each of some ends, counted from its start."""
    costs = []
    for late in ends.tolist():
        end = job.start + int(late)
        offered = unit.within(job.start + startup, end)
        work_cost = cheapest_work(*offered, job.work, job.most_nu)
        _, while_starting, _ = unit.within(job.start, end)
        starting_rate = job.work / (late - startup) * startup
        stretch = starting_rate * float(while_starting.min())
        costs.append(work_cost + stretch)

    return np.array(costs)


def cheapest_work(
    lengths: Floats, prices: Floats, nu: Floats, work: float, most_nu: float
) -> float:
    """Cost of the work when the cheapest moments and places are filled first, at most `most_nu` at
    a time.
    """
    reached = np.minimum(np.cumsum(nu, axis=1), most_nu)
    taken = np.diff(reached, axis=1, prepend=0.0)
    amounts = (taken * lengths[:, None]).ravel()
    flat = prices.ravel()
    order = np.argsort(flat, kind="stable")
    summed = np.cumsum(amounts[order])
    done = np.minimum(summed, work)
    used = np.diff(done, prepend=0.0)
    paid = used > 0
    return float(used[paid] @ flat[order][paid])


def _lowest_where_open(
    series: PriceSeries, openings: tuple[Ints, Bools] | None
) -> tuple[Ints, Floats]:
    """For each moment the lowest price that was in force within the hour before it; it is infinite
    while a market has no machines.
    """
    moments = np.concatenate((series.times, series.times + HOUR))
    times = np.unique(moments)
    last = np.searchsorted(series.times, times, side="right") - 1
    hour_ago = np.searchsorted(series.times, times - HOUR, side="right") - 1
    first = np.maximum(hour_ago, 0)
    count = last - first + 1
    minima = range_extremes(series.prices, int(count.max()), np.minimum)
    level = np.frexp(count)[1] - 1
    early = minima[level, first]
    before_last = last - (1 << level)
    late = minima[level, before_last + 1]
    lowest = np.minimum(early, late)

    if openings is None:
        return times, lowest.astype(np.float64)
    changes, is_open = openings
    later = changes[changes > times[0]]
    both = np.unique(np.concatenate((times, later)))
    price = lowest[np.searchsorted(times, both, side="right") - 1]
    place = np.searchsorted(changes, both, side="right")
    current = np.maximum(place - 1, 0)
    open_price = np.where(is_open[current], price, np.inf)
    return both, open_price


_Table = NDArray[np.int16] | NDArray[np.int32]


def cheapest(up: Bools, tick: int, terms: DeadlineTerms) -> tuple[int, int]:
    """The ticks on spot and on demand that the cheapest schedule of a job is billed for.

    `up` is the availability until its deadline, in ticks of `tick` microseconds.
    """
    # Each spell is entered at most once, and the delays have to fit in addition to the work.
    changes = np.count_nonzero(up[1:] != up[:-1])
    spells = 1 + int(changes)
    spare = up.size * tick - terms.work
    most_entries = (
        min(spells, spare // terms.delay) if terms.delay else (spells if spare >= 0 else 0)
    )
    if most_entries < 1:
        raise ImpossibleJob(f"{up.size} ticks cannot hold the work and the delay of one entry")

    lost = np.arange(most_entries + 1) * terms.delay
    minus_work = -(terms.work + lost)
    needed = -(minus_work // tick)
    if terms.price_ratio <= 1:
        return 0, int(needed[1])

    spot = _most_spot_ticks(up, needed)
    options = []
    for entries in range(1, most_entries + 1):
        ticks = int(needed[entries])
        if spot[entries] >= 0:
            on_demand = max(0, ticks - int(spot[entries]))
            extra = (terms.price_ratio - 1) * on_demand
            options.append((ticks + extra, on_demand, ticks))

    _, on_demand, ticks = min(options)
    return ticks - on_demand, on_demand


def _most_spot_ticks(up: NDArray[np.bool_], needed: Ints) -> Ints:
    """By number of entries: the most spot ticks of a schedule whose spot and capacity cover the
    need; negative if none does."""
    entries = needed.size
    most = int(needed[-1])
    dtype = np.int16 if up.size < 1 << 14 else np.int32
    idle = _unreached((entries, most + 1), dtype)
    held = idle.copy()  # an on-demand machine at the boundary
    idle[0, 0] = 0
    changes = np.flatnonzero(up[1:] != up[:-1]) + 1
    edges = np.concatenate(([0], changes, [up.size]))

    begins = edges[:-1].tolist()
    ends = edges[1:].tolist()
    for begin, end in zip(begins, ends, strict=True):
        length = end - begin
        np.maximum(idle, held, out=idle)  # a machine may be returned
        on_demand = _with_capacity(held, length)
        continued = _with_capacity(idle[:-1], length)
        np.maximum(on_demand[1:], continued, out=on_demand[1:])
        if up[begin]:
            # The right-hand side is complete before `idle` changes: a spell is entered once.
            ticks_in_type = idle.dtype.type(length)
            waited = idle[:-1] + ticks_in_type
            idle[1:] = np.maximum(idle[1:], waited)
        held = on_demand

    best = np.maximum(idle, held)
    spot = best + np.arange(most + 1)
    covers = spot >= needed[:, None]
    covered = np.where(covers, best, -1)
    most_covered = covered.max(axis=1)
    most_spot: Ints = most_covered.astype(np.int64)
    return most_spot


def _unreached(shape: tuple[int, ...], dtype: np.dtype | type) -> _Table:
    """A table without schedules: so far below 0 that no number of ticks in the type's range lifts
    it to 0.
    """
    least = np.iinfo(dtype).min // 2
    return np.full(shape, least, dtype=dtype)


def _with_capacity(table: _Table, ticks: int) -> _Table:
    """Capacity raised by a block's ticks; the last column stands for every sufficient capacity."""
    raised = _unreached(table.shape, table.dtype)
    kept = table.shape[1] - ticks
    if kept > 0:
        raised[:, ticks:] = table[:, :kept]
    first = max(kept - 1, 0)
    reachable = table[:, first:]
    raised[:, -1] = reachable.max(axis=1)
    return raised

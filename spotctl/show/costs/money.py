"""Where the money of a report went, as values for charts and tables: over time, by market, by
use."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from operator import attrgetter

import numpy as np

from pricing_data.market import Market
from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.log.ledger.account import RunTimeline
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use, usd
from spotctl.show.costs.charts import Bar, BarPart, Layer, PriceLine, Series
from spotctl.show.costs.columns import short_day
from spotctl.show.costs.cost import Figures, Report
from spotctl.show.costs.markup import SERIES, series_class
from spotctl.show.costs.periods import by_day, local

MAX_BARS = 45
"""The most bars that are readable side by side; more runs are shown by month."""

_POINTS = 120
OTHERS = "other markets"

USES: tuple[tuple[Use, str, str], ...] = (
    (Use.WORKING, "working", "work that was kept"),
    (Use.STARTING, "starting", "start-up: boot"),
    (Use.LOADING, "loading", "start-up: loading data and code"),
    (Use.REDONE, "redone", "redone work"),
    (Use.IDLE, "idle", "waiting"),
    (Use.UNUSED, "unused", "rest of paid hours"),
)
"""The uses of time with their color class, in the words of `STEPS`."""


@dataclass(frozen=True, slots=True)
class MarketCost:
    """The costs in one market, and its color class in the charts."""

    market: Market
    class_: str
    name: str
    paid: int
    refunded: int
    on_demand: int
    machine_micros: int
    price: float | None
    """Mean dollars per hour while machines were held, before refunds."""
    listed: float | None
    """The on-demand price in dollars per hour."""
    evictions: int


def markets_of(report: Report) -> tuple[MarketCost, ...]:
    """The markets by cost, the highest first; those beyond the last color share that color."""
    by_market = _by_market(report.rounded_rows())
    evictions = Counter(eviction.market for run in report.runs for eviction in run.evictions)
    # A part of a run may have an eviction without a row.
    by_market |= {market: [] for market in evictions if market not in by_market}
    paid = {market: sum(row.amount for row in rows) for market, rows in by_market.items()}
    order = sorted(by_market, key=lambda market: (-paid[market], market))

    costs = list[MarketCost]()
    for rank, market in enumerate(order):
        refunded = on_demand = machine_micros = paid_gross = seconds = 0
        listed: float | None = None
        for row in by_market[market]:
            on_demand += row.on_demand
            if row.kind is ChargeKind.REFUND:
                refunded -= row.amount
            elif row.kind is ChargeKind.COMPUTE:
                machine_micros += row.end - row.begin
                paid_gross += row.amount
                if row.price:
                    seconds += round(row.amount / row.price)
                if row.listed and listed is None:
                    listed = row.listed / 1e9

        price: float | None = None
        if seconds:
            price = paid_gross / seconds * 3600 / NANO_SECONDS_PER_DOLLAR
        shares_color = rank >= SERIES - 1 and len(order) > SERIES
        cost = MarketCost(
            market=market,
            class_=series_class(rank),
            name=OTHERS if shares_color else str(market),
            paid=paid[market],
            refunded=refunded,
            on_demand=on_demand,
            machine_micros=machine_micros,
            price=price,
            listed=listed,
            evictions=evictions[market],
        )
        costs.append(cost)

    return tuple(costs)


def bars_of(report: Report, markets: Sequence[MarketCost]) -> tuple[list[Bar], str]:
    """The cost of each run by market, or of each month if there are too many runs; and `run` or
    `month`.
    """
    runs = sorted(report.runs, key=attrgetter("wall_began"))
    bars = list[Bar]()
    if len(runs) <= MAX_BARS:
        by_run: defaultdict[str, list[LedgerRow]] = defaultdict(list)
        for row in report.rounded_rows():
            by_run[row.run].append(row)
        for run in runs:
            began = short_day(run.wall_began)
            name = f"{run.run}, {began}"
            bars.append(_bar(began, name, by_run[run.run], markets))
        return bars, "run"

    months: defaultdict[tuple[int, int], list[LedgerRow]] = defaultdict(list)
    for row in by_day(report.rows, report.zone):
        begin = local(row.begin, report.zone)
        months[begin.year, begin.month].append(row)

    for (year, month), rows in sorted(months.items()):
        name = f"{date(year, month, 1):%b %Y}"
        bars.append(_bar(name, name, rows, markets))
    return bars, "month"


def _bar(label: str, name: str, rows: Iterable[LedgerRow], markets: Sequence[MarketCost]) -> Bar:
    sums = Counter[Market]()
    for row in rows:
        sums[row.market] += row.amount
    parts = [Series(cost.class_, cost.name, usd(sums[cost.market])) for cost in markets]
    return Bar(label, name, tuple(parts))


def cumulative_of(rows: Sequence[LedgerRow], markets: Sequence[MarketCost]) -> list[Layer]:
    """The amount that one run had paid up to each moment, by market; a row's amount accrues evenly
    over its time.
    """
    begin, end = min(row.begin for row in rows), max(row.end for row in rows)
    moments = np.linspace(begin, end, _POINTS).astype(np.int64)
    layers = []
    for cost in markets:
        sums = np.zeros(_POINTS)
        for row in rows:
            if row.market == cost.market:
                # A charge for time after the end of a machine has no length.
                length = row.end - row.begin
                share = (
                    np.clip((moments - row.begin) / length, 0.0, 1.0)
                    if length
                    else moments >= row.end
                )
                sums += row.amount * share
        dollars = np.maximum(sums / NANO_SECONDS_PER_DOLLAR, 0.0)
        points = zip(moments.tolist(), dollars.tolist(), strict=True)
        layers.append(Series(cost.class_, cost.name, tuple(points)))

    return layers


def held_prices(rows: Iterable[LedgerRow], markets: Sequence[MarketCost]) -> list[PriceLine]:
    """The mean price of the spot machines held in each market, in percent of on-demand."""
    lines = []
    by_market = _by_market(
        row for row in rows if row.kind is ChargeKind.COMPUTE and row.spot and row.begin < row.end
    )

    for cost in markets:
        if cost.market in by_market and cost.listed:
            changes: dict[int, list[int]] = {}
            for row in by_market[cost.market]:
                for at, sign in ((row.begin, 1), (row.end, -1)):
                    change = changes.setdefault(at, [0, 0])
                    change[0] += sign
                    change[1] += sign * row.price

            pieces: list[tuple[int, int, float]] = []
            machines = prices = 0
            moments = sorted(changes)
            for at, until in pairwise(moments):
                machines += changes[at][0]
                prices += changes[at][1]
                if not machines:
                    continue
                percent = 100 * prices / machines / 1e9 / cost.listed
                if pieces and pieces[-1][1] == at and abs(pieces[-1][2] - percent) < 1e-9:
                    pieces[-1] = (pieces[-1][0], until, percent)
                else:
                    pieces.append((at, until, percent))

            lines.append(Series(cost.class_, cost.name, tuple(pieces)))
    return lines


def minimum_bids(run: RunTimeline, markets: Sequence[MarketCost]) -> list[PriceLine]:
    """The lowest minimum bid of the hosts of each market, from one look to the next, in percent of
    on-demand.
    """
    lines = list[PriceLine]()
    for cost in markets:
        looks = [look for look in run.minimum_bids if look.market == cost.market]
        if not looks or not cost.listed:
            continue
        ends = [*(look.at for look in looks[1:]), run.until]
        pieces = list[tuple[int, int, float]]()
        for look, end in zip(looks, ends, strict=True):
            percent = 100 * look.least / 1e9 / cost.listed
            pieces.append((look.at, end, percent))
        name = f"{cost.name}, lowest minimum bid"
        lines.append(Series(f"{cost.class_} least", name, tuple(pieces)))

    return lines


def parts_of(figures: Figures) -> list[BarPart]:
    parts = list[BarPart]()
    for use, class_, name in USES:
        amount = figures.uses.get(use, 0)
        parts.append(Series(class_, name, usd(amount)))
    others = usd(figures.other_charges)
    return [*parts, Series("other", "disks, addresses and traffic", others)]


def _by_market(rows: Iterable[LedgerRow]) -> dict[Market, list[LedgerRow]]:
    by_market: dict[Market, list[LedgerRow]] = {}
    for row in rows:
        by_market.setdefault(row.market, []).append(row)
    return by_market

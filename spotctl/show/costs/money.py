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
        rows = by_market[market]
        charged = [row for row in rows if row.kind is ChargeKind.COMPUTE]
        refunds = [row.amount for row in rows if row.kind is ChargeKind.REFUND]
        list_prices = (row.listed / 1e9 for row in charged if row.listed)
        price: float | None = None
        seconds = sum(round(row.amount / row.price) for row in charged if row.price)
        if seconds:
            paid_gross = sum(row.amount for row in charged)
            price = paid_gross / seconds * 3600 / NANO_SECONDS_PER_DOLLAR

        shares_color = rank >= SERIES - 1 and len(order) > SERIES
        cost = MarketCost(
            market=market,
            class_=series_class(rank),
            name=OTHERS if shares_color else str(market),
            paid=paid[market],
            refunded=-sum(refunds),
            on_demand=sum(row.on_demand for row in rows),
            machine_micros=sum(row.end - row.begin for row in charged),
            price=price,
            listed=next(list_prices, None),
            evictions=evictions[market],
        )
        costs.append(cost)

    return tuple(costs)


def bars_of(report: Report, markets: Sequence[MarketCost]) -> tuple[list[Bar], str]:
    """The cost of each run by market, or of each month if there are too many runs; and `run` or
    `month`.
    """
    runs = sorted(report.runs, key=attrgetter("wall_began"))
    by_run: defaultdict[str, list[LedgerRow]] = defaultdict(list)
    for row in report.rounded_rows():
        by_run[row.run].append(row)

    if len(runs) <= MAX_BARS:
        bars = list[Bar]()
        for run in runs:
            began = short_day(run.wall_began)
            bars.append(_bar(began, f"{run.run}, {began}", by_run[run.run], markets))
        return bars, "run"

    months: defaultdict[tuple[int, int], list[LedgerRow]] = defaultdict(list)
    for row in by_day(report.rows, report.zone):
        begin = local(row.begin, report.zone)
        months[begin.year, begin.month].append(row)

    names = {(year, month): f"{date(year, month, 1):%b %Y}" for year, month in sorted(months)}
    return [_bar(name, name, months[month], markets) for month, name in names.items()], "month"


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
            pieces = _percents(by_market[cost.market], cost.listed)
            lines.append(Series(cost.class_, cost.name, tuple(pieces)))
    return lines


def minimum_bids(run: RunTimeline, markets: Sequence[MarketCost]) -> list[PriceLine]:
    """The lowest minimum bid of the hosts of each market, from one look to the next, in percent of
    on-demand.
    """
    lines = []
    for cost in markets:
        looks = [look for look in run.minimum_bids if look.market == cost.market]
        if looks and cost.listed:
            percents = [100 * look.least / 1e9 / cost.listed for look in looks]
            ends = [*(look.at for look in looks[1:]), run.until]
            pieces = zip([look.at for look in looks], ends, percents, strict=True)
            lines.append(
                Series(f"{cost.class_} least", f"{cost.name}, lowest minimum bid", tuple(pieces))
            )

    return lines


def _percents(rows: Sequence[LedgerRow], listed: float) -> list[tuple[int, int, float]]:
    changes: dict[int, list[int]] = {}
    for row in rows:
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
        percent = 100 * prices / machines / 1e9 / listed
        if pieces and pieces[-1][1] == at and abs(pieces[-1][2] - percent) < 1e-9:
            pieces[-1] = (pieces[-1][0], until, percent)
        else:
            pieces.append((at, until, percent))

    return pieces


def parts_of(figures: Figures) -> list[BarPart]:
    parts = [Series(class_, name, usd(figures.uses.get(use, 0))) for use, class_, name in USES]
    return [*parts, Series("other", "disks, addresses and traffic", usd(figures.other_charges))]


def _by_market(rows: Iterable[LedgerRow]) -> dict[Market, list[LedgerRow]]:
    by_market: dict[Market, list[LedgerRow]] = {}
    for row in rows:
        by_market.setdefault(row.market, []).append(row)
    return by_market

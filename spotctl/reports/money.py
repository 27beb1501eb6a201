"""Where the money of a report went, as values that charts and tables show: over time, by market, by use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from pricing_data.market import Market
from pricing_data.units import to_datetime
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, Kind, Row, Use
from spotctl.reports.charts.bars import Column, Part
from spotctl.reports.charts.steps import Held, Layer
from spotctl.reports.charts.svg import SERIES, series_class
from spotctl.reports.cost import Figures, Report, usd
from spotctl.reports.run_timeline import RunTimeline

MOST_COLUMNS = 45
"""So many bars can be read side by side; more runs are shown by the month."""

_POINTS = 120
OTHERS = "other markets"

USES: tuple[tuple[Use, str, str], ...] = (
    (Use.WORKING, "working", "working"),
    (Use.STARTING, "starting", "starting"),
    (Use.LOADING, "loading", "loading what the job needs"),
    (Use.REDONE, "redone", "work done again after evictions"),
    (Use.IDLE, "idle", "idle"),
)


@dataclass(frozen=True, slots=True)
class MarketCost:
    """A market's part: its colour, and its sums."""

    market: Market
    class_: str
    name: str
    paid: int
    refunded: int
    on_demand: int
    machine_micros: int
    price: float | None
    """Mean dollars an hour while machines were held, before refunds."""
    listed: float | None
    evictions: int


def markets_of(report: Report) -> tuple[MarketCost, ...]:
    """The markets, the dearest first; those beyond the last colour share it."""
    by_market = _by_market(report.rows)
    taken: dict[Market, int] = defaultdict(int)
    for story in report.stories:
        for eviction in story.evictions:
            taken[eviction.market] += 1
    order = sorted(by_market, key=lambda market: (-sum(row.amount for row in by_market[market]), market))
    return tuple(_market(market, by_market[market], i, len(order), taken[market]) for i, market in enumerate(order))


def _market(market: Market, rows: Sequence[Row], place: int, of: int, evictions: int) -> MarketCost:
    charged = [row for row in rows if row.kind is Kind.COMPUTE]
    micros = sum(row.end - row.begin for row in charged)
    paid_gross = sum(row.amount for row in charged)
    seconds = sum(row.amount // row.price for row in charged if row.price)
    shares = place >= SERIES - 1 and of > SERIES
    return MarketCost(
        market,
        series_class(place),
        OTHERS if shares else str(market),
        sum(row.amount for row in rows),
        -sum(row.amount for row in rows if row.kind is Kind.REFUND),
        sum(row.on_demand for row in rows),
        micros,
        None if not seconds else paid_gross / seconds * 3600 / NANO_SECONDS_PER_DOLLAR,
        listed_price(charged),
        evictions,
    )


def listed_price(rows: Iterable[Row]) -> float | None:
    """Dollars an hour on demand, from a row that says it: those of work done again do not."""
    return next((row.on_demand / row.amount * row.price / 1e9 for row in rows if row.on_demand and row.amount), None)


def columns_of(report: Report, markets: Sequence[MarketCost]) -> tuple[list[Column], str]:
    """What each run cost, by market, or each month where there are too many runs; and which of both it is."""
    stories = sorted(report.stories, key=lambda story: story.wall_began)
    by_run = {run: list(rows) for run, rows in groupby(sorted(report.rows, key=_run_of), key=_run_of)}
    if len(stories) <= MOST_COLUMNS:
        return [
            _column(_short(story), f"{story.run}, {_short(story)}", by_run.get(story.run, ()), markets)
            for story in stories
        ], "run"
    months: dict[str, list[Row]] = {}
    for story in stories:
        months.setdefault(f"{to_datetime(story.wall_began):%b %Y}", []).extend(by_run.get(story.run, ()))
    return [_column(month, month, rows, markets) for month, rows in months.items()], "month"


def _run_of(row: Row) -> str:
    return row.run


def _short(story: RunTimeline) -> str:
    moment = to_datetime(story.wall_began)
    return f"{moment.day} {moment:%b}"


def _column(label: str, name: str, rows: Iterable[Row], markets: Sequence[MarketCost]) -> Column:
    sums = {market: sum(row.amount for row in these) for market, these in _by_market(rows).items()}
    parts = tuple(Part(one.class_, one.name, usd(sums.get(one.market, 0))) for one in markets)
    return Column(label, name, parts)


def cumulative_of(rows: Sequence[Row], markets: Sequence[MarketCost]) -> list[Layer]:
    """What one run paid up to each moment, by market; a row's amount accrues evenly over its time."""
    begin, end = min(row.begin for row in rows), max(row.end for row in rows)
    moments = np.linspace(begin, end, _POINTS).astype(np.int64)
    layers = []
    for one in markets:
        sums = np.zeros(_POINTS)
        for row in rows:
            if row.market == one.market:
                # What is charged beyond the end of a life has no length.
                length = row.end - row.begin
                share = np.clip((moments - row.begin) / length, 0.0, 1.0) if length else moments >= row.end
                sums += row.amount * share
        dollars = np.maximum(sums / NANO_SECONDS_PER_DOLLAR, 0.0)
        points = zip(moments.tolist(), dollars.tolist(), strict=True)
        layers.append(Layer(one.class_, one.name, tuple(points)))
    return layers


def held_prices(rows: Iterable[Row], markets: Sequence[MarketCost]) -> list[Held]:
    """Per market what was paid for spot machines while some were held, in percent of on-demand: the mean over them."""
    found = []
    by_market = _by_market(row for row in rows if row.kind is Kind.COMPUTE and row.spot and row.begin < row.end)
    for one in markets:
        if one.market in by_market and one.listed:
            pieces = _percents(by_market[one.market], one.listed)
            found.append(Held(one.class_, one.name, tuple(pieces)))
    return found


def _percents(rows: Sequence[Row], listed: float) -> list[tuple[int, int, float]]:
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


def parts_of(figures: Figures) -> list[Part]:
    """What the total is made of, by what machines did."""
    parts = [Part(class_, name, usd(figures.uses.get(use, 0))) for use, class_, name in USES]
    return [*parts, Part("besides", "disks, addresses and traffic", usd(figures.besides))]


def _by_market(rows: Iterable[Row]) -> dict[Market, list[Row]]:
    found: dict[Market, list[Row]] = {}
    for row in rows:
        found.setdefault(row.market, []).append(row)
    return found

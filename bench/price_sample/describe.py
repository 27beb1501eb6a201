"""The summary statistics of spot markets to which the synthetic sample is fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.price_sample.synthetic import (
    SEED,
    TEMPERS,
    Temper,
    sample_parameters,
    shipped_sample,
    stormy_markets,
)
from pricing_data.catalog import Catalog
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import PriceBatch
from pricing_data.market import Market
from pricing_data.samples import bundled_catalog
from pricing_data.series import Ints, PriceSeries
from pricing_data.sources.files import read
from pricing_data.stats import MarketStats, describe
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR

_LABEL, _CELL = 46, 24


class DescribedMarket(NamedTuple):
    """One market's history, its statistics, and its on-demand price in nano-dollars per hour."""

    series: PriceSeries
    stats: MarketStats
    on_demand: int


class Episode(NamedTuple):
    """A time above on-demand: its start, its length, and its highest price as a multiple of
    on-demand.
    """

    market: Market
    start: int
    length: int
    height: float


def comparison(files: Sequence[Path]) -> str:
    """The statistics of the sample next to those of price files, and the sample's parameters."""
    observed = observations(shipped_sample(), bundled_catalog())
    stormy = stormy_markets()
    columns = {"sample": [each for each in observed if each.series.market not in stormy]}
    for path in files:
        columns[path.name] = observations(_prices_of(path), bundled_catalog())
    evictions = [_evictions(each) for each in observed if each.series.market in stormy]
    return "\n".join([*_table(columns), "", *evictions, "", *_fitted(), ""])


def observations(batch: PriceBatch, catalog: Catalog) -> list[DescribedMarket]:
    """The markets of a batch whose on-demand price is known."""
    described = [(series, describe(series, catalog)) for series in PriceTable.of(batch)]
    return [
        DescribedMarket(series, stats, stats.on_demand.price)
        for series, stats in described
        if stats.on_demand
    ]


def statistics(markets: Sequence[DescribedMarket]) -> list[tuple[str, str]]:
    """The statistics with their labels: the first three of all markets, the others of those that
    move.
    """
    moving = [each for each in markets if _moves_daily(each.stats)]
    if not moving:
        raise BadInput(
            "no market with a known on-demand price moves more than once a day for two days or "
            "longer"
        )
    episodes = [
        episode for each in moving for episode in episodes_above(each.series, each.on_demand)
    ]
    days = sum(each.stats.last - each.stats.first for each in moving) / DAY
    return [
        ("markets", f"{len(markets)}"),
        ("of them moving more than once a day", f"{len(moving)}"),
        (
            "of them ever above on-demand",
            f"{sum(each.stats.highest > each.on_demand for each in markets)}",
        ),
        ("changes a day, by market", _quartiles(each.stats.changes_per_day for each in moving)),
        (
            "minutes between changes, median by market",
            _quartiles(_median_gap(each.series) for each in moving),
        ),
        (
            "size of a change in %, median by market",
            _quartiles(_median_move(each.series) for each in moving),
        ),
        (
            "median price / on-demand, by market",
            _quartiles(each.stats.median / each.on_demand for each in moving),
        ),
        ("spikes above on-demand, per market and day", f"{len(episodes) / days:.2f}"),
        ("spike height / on-demand", _quartiles(episode.height for episode in episodes)),
        ("spike length in minutes", _quartiles(episode.length / MINUTE for episode in episodes)),
        ("spikes begun within 10 min of a sibling's in %", f"{100 * shared_share(episodes):.0f}"),
        *_betas(moving),
    ]


def episodes_above(series: PriceSeries, on_demand: int) -> list[Episode]:
    """The times that a market spent above on-demand."""
    above = np.concatenate(([False], series.prices[:-1] > on_demand, [False]))
    rises, falls = np.flatnonzero(above[1:] & ~above[:-1]), np.flatnonzero(above[:-1] & ~above[1:])
    return [
        Episode(
            series.market,
            int(series.times[rise]),
            int(series.times[fall] - series.times[rise]),
            float(series.prices[rise:fall].max() / on_demand),
        )
        for rise, fall in zip(rises.tolist(), falls.tolist(), strict=True)
    ]


def shared_share(episodes: Sequence[Episode]) -> float:
    """The share of episodes that begin within ten minutes of one in another zone of the same
    type."""
    if not episodes:
        return 0.0
    return sum(any(_together(episode, other) for other in episodes) for episode in episodes) / len(
        episodes
    )


def beta(series: PriceSeries, delta: int, window: int = HOUR) -> float:
    """The share of starts, one a minute, whose bid of price + `delta` is exceeded within a
    window."""
    starts = np.arange(series.first, series.last - window, MINUTE)
    now = np.searchsorted(series.times, starts, "right") - 1
    end = np.searchsorted(series.times, starts + window, "right")
    # `reduceat` also returns the spans between windows; every second result belongs to a window.
    edges = np.column_stack((now + 1, end)).ravel()
    highest = np.maximum.reduceat(np.append(series.prices, 0), edges)[::2]
    highest[now + 1 == end] = 0
    return float(np.mean(highest > series.prices[now] + delta))


def crossings_per_hour(series: PriceSeries, limit: int) -> Ints:
    """How often the price rose above a limit in each hour of the history."""
    above = series.prices > limit
    rises = series.times[1:][above[1:] & ~above[:-1]]
    hours = (series.last - series.first) // HOUR
    return np.bincount((rises - series.first) // HOUR, minlength=hours)[:hours].astype(np.int64)


def _prices_of(path: Path) -> PriceBatch:
    try:
        return PriceBatch.joined(batch.fetched.prices for batch in read(path))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _table(columns: Mapping[str, Sequence[DescribedMarket]]) -> Iterator[str]:
    described = []
    for name, markets in columns.items():
        try:
            described.append(dict(statistics(markets)))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
    yield " " * _LABEL + "".join(f"  {name[:_CELL]:>{_CELL}}" for name in columns)
    for label in described[0]:
        yield f"{label:{_LABEL}}" + "".join(f"  {figures[label]:>{_CELL}}" for figures in described)


def _evictions(stormy: DescribedMarket) -> str:
    counts = crossings_per_hour(stormy.series, stormy.on_demand)
    return (
        f"{stormy.series.market}, left out above, rises above on-demand {counts.mean():.1f} times "
        f"an hour, in no hour less than {counts.min()} times"
    )


def _fitted() -> Iterator[str]:
    names = [field.name for field in fields(Temper)]
    yield f"{'temper':8}" + "".join(f"  {name:>6}" for name in names)
    for temper, values in TEMPERS.items():
        yield f"{temper:8}" + "".join(
            f"  {getattr(values, name):{max(6, len(name))}g}" for name in names
        )
    parameters = sample_parameters(bundled_catalog())
    yield (
        f"seed {SEED}, {parameters.days} days, calming {parameters.calming / HOUR:g} h,"
        f" echo {parameters.echo:g} after {parameters.echo_delay / MINUTE:g} min"
    )


def _betas(moving: Sequence[DescribedMarket]) -> Iterator[tuple[str, str]]:
    bids: dict[str, Callable[[int], int]] = {
        "price + $0.0001": lambda _: NANOS_PER_DOLLAR // 10_000,
        "price + $0.01": lambda _: NANOS_PER_DOLLAR // 100,
        "price + 5% of on-demand": lambda on_demand: on_demand // 20,
    }
    for bid, delta in bids.items():
        shares = [beta(each.series, delta(each.on_demand)) for each in moving]
        yield f"beta(1 h), bid {bid}, mean", f"{np.mean(shares):.3f}"
        yield f"beta(1 h), bid {bid}, by market", _quartiles(shares)


def _together(episode: Episode, other: Episode) -> bool:
    a, b = episode.market, other.market
    same_type = (a.cloud, a.region, a.instance_type, a.os) == (
        b.cloud,
        b.region,
        b.instance_type,
        b.os,
    )
    return same_type and a.zone != b.zone and abs(episode.start - other.start) < 10 * MINUTE


def _moves_daily(stats: MarketStats) -> bool:
    return stats.last - stats.first >= 2 * DAY and stats.changes_per_day > 1


def _moves(series: PriceSeries) -> Ints:
    """The positions of events that changed the price."""
    return np.flatnonzero(np.diff(series.prices)) + 1


def _median_gap(series: PriceSeries) -> float:
    return float(np.median(np.diff(series.times[_moves(series)]))) / MINUTE


def _median_move(series: PriceSeries) -> float:
    moves = _moves(series)
    return 100 * float(np.median(np.abs(np.log(series.prices[moves] / series.prices[moves - 1]))))


def _quartiles(values: Iterable[float]) -> str:
    figures = np.array(list(values))
    if not figures.size:
        return "none"
    return " / ".join(f"{quartile:.3g}" for quartile in np.quantile(figures, (0.25, 0.5, 0.75)))

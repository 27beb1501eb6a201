"""Finds gaps in histories: holes in observation, seams between downloads, and markets no longer watched."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from pricing_data.market import Market
from pricing_data.observed import holes, longest_silence
from pricing_data.series import PriceSeries
from pricing_data.store.table import PriceTable

# A seam is a time when at least this share of a region's markets was not observed.
_SEAM_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Gap:
    """A market was not observed from `start` to `end`."""

    market: Market
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Seam:
    """At least half of a region's markets were not observed from `start` to `end`: the recording stopped."""

    cloud: str
    region: str
    start: int
    end: int
    silent: int
    markets: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A market was last observed at `last`, longer ago than is usual for it; `newest` is its region's last."""

    market: Market
    last: int
    newest: int


@dataclass(frozen=True, slots=True)
class GapReport:
    """All gaps of a set of markets."""

    seams: tuple[Seam, ...]
    gaps: tuple[Gap, ...]
    stale: tuple[Stale, ...]


def find_gaps(table: PriceTable, now: int) -> GapReport:
    """The gaps in a table's histories, region by region; `now` is the time that staleness is measured against."""
    seams: list[Seam] = []
    gaps: list[Gap] = []
    stale: list[Stale] = []
    for (cloud, region), members in groupby(table, key=lambda series: (series.market.cloud, series.market.region)):
        histories = list(members)
        gaps_here = [gap for series in histories for gap in _gaps(series)]
        newest = max(series.last for series in histories)
        gaps += gaps_here
        seams += _seams(cloud, region, gaps_here, len(histories))
        stale += (
            Stale(series.market, series.last, newest)
            for series in histories
            if not series.market.is_synthetic and now - series.last > longest_silence(series.times)
        )
    return GapReport(tuple(seams), tuple(gaps), tuple(stale))


def _gaps(series: PriceSeries) -> Iterable[Gap]:
    return (Gap(series.market, *hole) for hole in holes(series.watched or ()))


def _seams(cloud: str, region: str, gaps: list[Gap], markets: int) -> Iterable[Seam]:
    """The spans in which enough gaps of a region overlap."""
    if markets < 2:
        return
    edges = sorted([(gap.start, 1) for gap in gaps] + [(gap.end, -1) for gap in gaps])
    silent = most = start = 0
    for time, step in edges:
        before = silent
        silent += step
        if before < markets * _SEAM_SHARE <= silent:
            start, most = time, silent
        elif silent < markets * _SEAM_SHARE <= before:
            yield Seam(cloud, region, start, time, most, markets)
        most = max(most, silent)

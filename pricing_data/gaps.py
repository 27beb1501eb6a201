"""Finds gaps in histories: silent markets, seams between two downloads, and markets that stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR

# AWS repeats every price at least once a day; a silence is suspicious if it lasts well over a day and longer than is
# usual for the market (one that is recorded only on changes may be silent for months).
_LEAST_SILENCE = 36 * HOUR
_USUAL_FACTOR = 1.5
_USUAL_QUANTILE = 0.95
# A seam is a time when at least this share of a region's markets is silent.
_SEAM_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Gap:
    """A market has no events from `start` to `end`, longer than is usual for it."""

    market: Market
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Seam:
    """At least half of a region's markets were silent from `start` to `end`: the recording stopped, not the market."""

    cloud: str
    region: str
    start: int
    end: int
    silent: int
    markets: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A market was last seen at `last`, long before the newest event of its region."""

    market: Market
    last: int
    newest: int


@dataclass(frozen=True, slots=True)
class GapReport:
    """All gaps of a set of markets."""

    seams: tuple[Seam, ...]
    gaps: tuple[Gap, ...]
    stale: tuple[Stale, ...]


def find_gaps(table: PriceTable) -> GapReport:
    """The gaps in a table's histories, region by region."""
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
            if newest - series.last > _longest_usual_silence(series)
        )
    return GapReport(tuple(seams), tuple(gaps), tuple(stale))


def _gaps(series: PriceSeries) -> Iterable[Gap]:
    silences = np.diff(series.times)
    for at in np.flatnonzero(silences > _longest_usual_silence(series)):
        yield Gap(series.market, int(series.times[at]), int(series.times[at + 1]))


def _longest_usual_silence(series: PriceSeries) -> float:
    if len(series) < 3:
        return float("inf")
    return max(_LEAST_SILENCE, _USUAL_FACTOR * float(np.quantile(np.diff(series.times), _USUAL_QUANTILE)))


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

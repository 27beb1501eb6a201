"""How often are bids crossed that plans and `spotctl lab beta show` give a probability?

    python -m bench.present_odds --moments 20

At random moments of the last half of recorded prices, each market gets bids at several distances
from its price. The probabilities are that of the hour that begins then, the share of past starts at
the same distance (`plain share`), and both for the same hour a day later, which is what a plan
needs for all hours but its first. Each line has the log loss, the Brier score, and the mean
prediction. Then the first is compared, in bins, with the share of bids that were crossed; `low` and
`high` are the 95% interval of the difference over resampled days.

With `--day`, bins are of all starts of the day that follows a moment, by what was fitted then to
the markets that are close to one of `--markets` drawn ones: the bids of a few hundred moments for
the work of one. `--plot FILE` draws the bins.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.forecast_worlds import imported
from bidbrain.arrays import Bools, Floats
from bidbrain.eviction.conditional import CrossingPanel, PricePath, between, fit
from bidbrain.eviction.crossing import BidAbove, CrossingHistory
from bidbrain.eviction.estimate import MEMORY, PriceOutlook, closest
from bidbrain.lab.backtest.results import drawn_blocks
from pricing_data.library import Library, Selection
from pricing_data.series import Ints
from pricing_data.store.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR
from spotctl.show.plots import BLUE, INK, panels, save_plot

DELTAS = (100_000, 1_000_000, 10_000_000)
"""$0.0001, $0.001 and $0.01 above the price."""
EDGES = np.array([0.0, 0.01, 0.02, 0.05, *np.linspace(0.1, 1.0, 10)])
_LEAST = 1e-3
_FEWEST = 30
"""Bins of fewer bids are not printed."""


def worlds(folder: Path, work: Path, only: list[str]) -> Iterator[tuple[str, PriceTable]]:
    """The recorded prices whose names contain one of these words."""
    library = Library(PriceStore(work / "nothing"))
    if any(word in "shipped market" for word in only):
        yield "shipped market", library.table(library.require(Selection("local/*")))
    prices, listed = folder / "prices", folder / "prices" / "aws_on_demand_linux.csv.gz"
    for name in (
        "aws_us-east-1_2016-02-24_2016-04-05",
        "aws_gpu_2019-12_2020-03",
        "aws_sa-east-1_2019-12_2020-06",
    ):
        if not any(word in name for word in only):
            continue
        library = imported(work / name, prices / f"{name}.csv.gz", listed)
        yield name, library.table(library.require(Selection("aws/*")))


def outcomes(table: PriceTable, moments: int, markets: int) -> tuple[Floats, Bools, Ints]:
    """Predictions of bids (of the hour, the plain share, and the share of the past), whether each
    was crossed in that hour and in the same hour a day later, and the days."""
    chance = np.random.default_rng(5)
    known = [series for series in table if series.last - series.first > 14 * DAY]
    begin, end = (
        min(series.first for series in known),
        max(series.last for series in known) - DAY - HOUR,
    )
    rows, crossed, days = [], [], []
    for at in np.sort(chance.integers(begin + (end - begin) // 2, end, moments)).tolist():
        outlook = PriceOutlook(table.markets, table.series, at)
        there = [
            series for series in known if series.first + 2 * DAY < at < series.last - DAY - HOUR
        ]
        for number in chance.permutation(len(there))[:markets].tolist():
            series = there[number]
            history, path = series.window(max(series.first, at - MEMORY), at), PricePath(series)
            shares = CrossingHistory(history, HOUR).betas(np.array(DELTAS)).tolist()
            highest = [
                int(path.highest_after(np.array([then]), HOUR)[0]) for then in (at, at + DAY)
            ]
            later = series.price_at(at + DAY)
            for delta, share in zip(DELTAS, shares, strict=True):
                rows.append((outlook.of(history, delta).probability, share))
                crossed.append(
                    (highest[0] > series.price_at(at) + delta, highest[1] > later + delta)
                )
                days.append(at // DAY)
    return np.array(rows), np.array(crossed), np.array(days)


def day_outcomes(table: PriceTable, moments: int, markets: int) -> tuple[Floats, Bools, Ints]:
    """The probabilities of all starts of the day after each moment, whether each was crossed, and
    the days.
    """
    chance = np.random.default_rng(11)
    known = {series.market: series for series in table if series.last - series.first > 14 * DAY}
    begin, end = (
        min(each.first for each in known.values()),
        max(each.last for each in known.values()) - 2 * DAY,
    )
    parts: list[tuple[Floats, Bools, Ints]] = []
    for at in np.sort(chance.integers(begin + (end - begin) // 2, end, moments)).tolist():
        there = {
            market: each
            for market, each in known.items()
            if each.first + 2 * DAY < at < each.last - 2 * DAY
        }
        for number in chance.integers(len(there), size=markets).tolist():
            histories = [
                there[market].window(max(there[market].first, at - MEMORY), at + DAY + HOUR)
                for market in closest(list(there)[number], there)
            ]
            lowest = [(history, BidAbove(0)) for history in histories]
            panel = CrossingPanel(lowest, HOUR, at)
            starts = panel.starts_between(at, at + DAY)
            odds = fit(panel, at, np.random.default_rng(2016)).odds(panel, *starts)
            for delta in DELTAS:
                asked = np.full(len(odds), delta)
                rows = panel.rows(*starts, asked)
                predicted = between(panel.distances, odds, asked)
                parts.append((predicted, rows.crossed, rows.times // DAY))
    stated, crossed, days = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return stated, crossed, days


def bins(
    stated: Floats, crossed: Bools, days: Ints
) -> Iterator[tuple[float, float, int, float, float, float, float]]:
    """For each bin its edges, the bids, the mean probability, the share of crossings, and the
    interval of the difference."""
    for low, high in pairwise(EDGES):
        inside = (stated >= low) & ((stated < high) | (high == 1.0))
        if inside.sum() < _FEWEST:
            continue
        _, block = np.unique(days[inside], return_inverse=True)
        drawn = drawn_blocks(int(block.max()) + 1, np.random.default_rng(0))
        apart, bids = np.bincount(block, crossed[inside] - stated[inside]), np.bincount(block)
        ends = np.quantile(apart[drawn].sum(axis=1) / bids[drawn].sum(axis=1), (0.025, 0.975))
        mean, seen = float(stated[inside].mean()), float(crossed[inside].mean())
        yield float(low), float(high), int(inside.sum()), mean, seen, float(ends[0]), float(ends[1])


def plot(
    of_worlds: dict[str, list[tuple[float, float, int, float, float, float, float]]], path: Path
) -> None:
    """Stated probability against the share of bids that were crossed, for each record."""
    figure, across = panels(3.6 * len(of_worlds), 3.9, across=len(of_worlds), sharey=True)
    for axes, (name, known) in zip(across, of_worlds.items(), strict=True):
        axes.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1)
        stated, seen, low, high = (np.array([row[i] for row in known]) for i in (3, 4, 5, 6))
        ends = np.clip(np.stack([seen - (stated + low), stated + high - seen]), 0, None)
        axes.errorbar(stated, seen, yerr=ends, color=BLUE, fmt="o", ms=4, linewidth=1)
        axes.set_title(name, loc="left", fontsize=8)
        axes.set_xlabel("stated probability")
    across[0].set_ylabel("share of bids crossed within the hour")
    save_plot(figure, path)


def _print_bins(known: Sequence[tuple[float, float, int, float, float, float, float]]) -> None:
    for low, high, count, mean, seen, least, most in known:
        figures = f"{count:6} stated {mean:.3f}  seen {seen:.3f}  [{least:+.3f}, {most:+.3f}]"
        print(f"  {low:4.2f} to {high:4.2f} {figures}", flush=True)


def main() -> None:
    """Prints scores and bins of each record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20, help="moments of each record")
    parser.add_argument("--markets", type=int, default=40, help="markets at each moment")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="records whose names contain one of these words"
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--day", action="store_true", help="bins of all starts of the day after each moment"
    )
    parser.add_argument("--plot", type=Path, help="picture of the bins")
    args = parser.parse_args()
    drawn = {}
    with tempfile.TemporaryDirectory() as work:
        for name, table in worlds(args.data, Path(work), args.only):
            if args.day:
                shares, happened, days = day_outcomes(table, args.moments, args.markets)
                loss = -np.log(
                    np.where(happened, np.maximum(shares, _LEAST), np.maximum(1 - shares, _LEAST))
                ).mean()
                print(
                    f"{name}: {happened.size} starts, {happened.mean():.1%} crossed, log loss "
                    f"{loss:.4f}"
                )
                drawn[name] = list(bins(shares, happened, days))
                _print_bins(drawn[name])
                continue
            stated, crossed, days = outcomes(table, args.moments, args.markets)
            print(f"{name}: {len(stated)} bids, {crossed[:, 0].mean():.1%} crossed", flush=True)
            for hour, column in (("this hour", 0), ("a day later", 1)):
                for kind, p in zip(("stated", "plain share"), stated.T, strict=True):
                    inside, happened = np.clip(p, _LEAST, 1 - _LEAST), crossed[:, column]
                    loss = float(-np.log(np.where(happened, inside, 1 - inside)).mean())
                    brier = float(((p - happened) ** 2).mean())
                    print(
                        f"  {hour:12} {kind:12} log loss {loss:.4f}  Brier {brier:.4f}  mean "
                        f"{p.mean():.1%}"
                    )
            drawn[name] = list(bins(stated[:, 0], crossed[:, 0], days))
            _print_bins(drawn[name])
    if args.plot is not None:
        plot(drawn, args.plot)


if __name__ == "__main__":
    main()

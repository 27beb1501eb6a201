"""Which probability of a price crossing is right about a moment: plain shares, or estimates of the moment.

    python -m bench.present_odds --samples 150

For random moments, markets and bids of recorded prices: the probability that decisions use (the share of past starts at
the bid's distance from the price), and those of `spotctl lab beta show` for the same bid, given as a distance and as an
amount. Each line has the log loss, the Brier score, and the mean prediction beside the share of bids that were crossed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.forecast_worlds import imported
from bidbrain.eviction.conditional import PricePath
from bidbrain.eviction.crossing import BidAbove, CrossingHistory, FixedBid
from bidbrain.eviction.estimate import MEMORY, price_outlook
from pricing_data.library import Library, Selection
from pricing_data.series import PriceSeries
from pricing_data.store.store import PriceStore
from pricing_data.units import DAY, HOUR
from spotctl.lab.beta.estimates import BetaQuery

DELTAS = (100_000, 1_000_000, 10_000_000)
"""$0.0001, $0.001 and $0.01 above the price."""
SIBLINGS = 12
NAMES = ("plain share", "beta show, distance", "beta show, amount")
_LEAST = 1e-3


def worlds(folder: Path, work: Path) -> Iterator[tuple[str, Library, str]]:
    """Stores of the recorded prices, and the markets to ask."""
    yield "shipped market", Library(PriceStore(work / "nothing")), "local/*"
    prices, listed = folder / "prices", folder / "prices" / "aws_on_demand_linux.csv.gz"
    for name in ("aws_us-east-1_2016-02-24_2016-04-05", "aws_gpu_2019-12_2020-03", "aws_sa-east-1_2019-12_2020-06"):
        yield name, imported(work / name, prices / f"{name}.csv.gz", listed), "aws/*"


def predictions(library: Library, series: PriceSeries, others: list[PriceSeries], at: int, delta: int) -> list[float]:
    """The three probabilities of one bid at a moment."""
    history = series.window(max(series.first, at - MEMORY), at)
    query = BetaQuery(library, series, tuple(others), HOUR, at)
    bids = (BidAbove(delta), FixedBid(series.price_at(at) + delta))
    shown = [price_outlook(query.markets_at(bid), HOUR, at).probability for bid in bids]
    return [CrossingHistory(history, HOUR).at_delta(delta).share, *shown]


def outcomes(library: Library, glob: str, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of random bids in the last half of the record, and whether each was crossed within the hour."""
    chance = np.random.default_rng(5)
    known = [
        series for series in library.table(library.require(Selection(glob))) if series.last - series.first > 14 * DAY
    ]
    rows, crossed = [], []
    for _ in range(samples):
        series = known[int(chance.integers(len(known)))]
        at = int(chance.integers(series.first + (series.last - series.first) // 2, series.last - HOUR))
        others = [known[int(i)] for i in chance.choice(len(known), min(SIBLINGS, len(known)), replace=False)]
        delta = int(chance.choice(DELTAS))
        rows.append(
            predictions(library, series, [o for o in others if o is not series and o.first < at - 2 * DAY], at, delta)
        )
        highest = PricePath(series).highest_after(np.array([at]), HOUR)[0]
        crossed.append(highest > series.price_at(at) + delta)
    return np.array(rows), np.array(crossed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for name, library, glob in worlds(given.data, Path(work)):
            rows, crossed = outcomes(library, glob, given.samples)
            print(f"{name}: {len(rows)} bids, {crossed.mean():.1%} crossed", flush=True)
            for kind, column in zip(NAMES, rows.T, strict=True):
                p = np.clip(column, _LEAST, 1 - _LEAST)
                loss = float(-(crossed * np.log(p) + ~crossed * np.log(1 - p)).mean())
                print(
                    f"  {kind:<20} log loss {loss:.4f}  Brier {((column - crossed) ** 2).mean():.4f}"
                    f"  mean {column.mean():.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""How much zones tell of themselves and of each other: `python -m bench.regions_prior FOLDER`, a
folder of records.

`regions` corrects its prior by a factor for each zone, from the endings of its spells and, in part,
of those of its region. This prints how likely the next tick is under that, on the traces of the
prior, by the prior's strength (in endings) and by the weight of the other zones. Nothing is known
at the start of each 52 hours, the length of the jobs of the study. Sums of log-likelihood; less
than the best in its table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.backtest.deadline import AvailabilityHistory
from bidbrain.strategies.spells import PUBLIC_PRIOR, outlook
from pricing_data.units import HOUR
from spotctl.lab.backtest.deadline import recorded

REGIONS = (
    "availability__1-node__aws-10-26-2022__us-west-2*",
    "preemption__1-node__aws-04-19-2023__us-east-1*",
    "preemption__1-node__aws-04-22-2023__us-east-1*",
    "preemption__1-node__aws-04-22-2023__us-west-2*",
)
STRENGTHS = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 14.0, 20.0)
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
BLOCK = 52 * HOUR


def main(words: Sequence[str]) -> None:
    """Prints a table for down spells and one for up spells."""
    if len(words) != 1:
        sys.exit("usage: python -m bench.regions_prior FOLDER")
    folder = Path(words[0]) / "availability"
    blocks = [
        block
        for name in REGIONS
        for block in blocks_of(list(map(AvailabilityHistory.of, recorded(str(folder / name)))))
    ]
    for side, name in enumerate(("down", "up")):
        table = np.array(
            [
                [
                    sum(
                        log_likelihood(ends[side], hazard[side], strength, weight)
                        for ends, hazard in blocks
                    )
                ]
                for weight in WEIGHTS
                for strength in STRENGTHS
            ]
        ).reshape(len(WEIGHTS), -1)
        print(f"{name:12}" + "".join(f"{strength:8g}" for strength in STRENGTHS))
        for weight, row in zip(WEIGHTS, table - table.max(), strict=True):
            print(f"weight {weight:<5g}" + "".join(f"{likelihood:8.1f}" for likelihood in row))


def blocks_of(histories: Sequence[AvailabilityHistory]) -> Iterator[tuple[Floats, Floats]]:
    """The endings of down and up spells by zone and tick of a region, and how many the prior
    expects.
    """
    gap, ticks = histories[0].gap, min(history.up.size for history in histories)
    rates = PUBLIC_PRIOR.rates().ravel() * gap / HOUR
    ends, expected = np.zeros((2, len(histories), ticks)), np.zeros((2, len(histories), ticks))
    for zone, history in enumerate(histories):
        up, last = history.up[:ticks], np.append(history.up[1:] != history.up[:-1], False)[:ticks]
        hazard = rates[outlook(history.up, gap, PUBLIC_PRIOR).state[:ticks]]
        for side in (0, 1):
            here = up == bool(side)
            ends[side, zone], expected[side, zone] = here & last, np.where(here, hazard, 0.0)
    each = BLOCK // gap
    for begin in range(0, ticks - each // 4, each):
        yield ends[:, :, begin : begin + each], expected[:, :, begin : begin + each]


def log_likelihood(ends: Floats, expected: Floats, strength: float, weight: float) -> float:
    """Log-likelihood of the endings of a region's up or down spells, each tick predicted from
    earlier ticks.
    """
    factor = (strength + _weighted(ends, weight)) / (strength + _weighted(expected, weight))
    rate = np.maximum(factor * expected, 1e-12)
    return float((ends * np.log(rate) - rate)[expected > 0].sum())


def _weighted(counts: Floats, weight: float) -> Floats:
    """Counts of earlier ticks in each zone, plus a share of the counts of the region's other
    zones."""
    own = np.cumsum(counts, axis=1) - counts
    weighted: Floats = own + weight * (own.sum(axis=0) - own)
    return weighted


if __name__ == "__main__":
    main(sys.argv[1:])

"""The prior of the deadline strategies: `python -m bench.deadline_prior GLOB...`.

Prints the endings per hour of down and of up spells, by age class, pooled over the availability traces that the globs
match. `PUBLIC_PRIOR` is that of `*__1-node__*`, and `REGIONS_PRIOR` that of the AWS traces of October 2022 and April
2023: `*__1-node__aws-10-*` and `*__1-node__aws-04-*`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.strategies.deadline_spells import AGES, CLASSES, Prior, spell_ages, spell_ends
from pricing_data.units import HOUR
from spotctl.lab.backtest.deadline import read


def main(patterns: Sequence[str]) -> None:
    """Prints both sides of the prior."""
    if not patterns:
        sys.exit("usage: python -m bench.deadline_prior GLOB...")
    histories = [history for pattern in patterns for history in read(pattern)]
    prior = fit_prior([(history.up, history.gap) for history in histories])
    for side, rates in (("down", prior.down), ("up", prior.up)):
        print(f"{side:5}", ", ".join(f"{rate:.3g}" for rate in rates))


def fit_prior(histories: Sequence[tuple[Bools, int]]) -> Prior:
    """Pooled endings per hour; each class is shrunk towards its side's mean with the weight of one ending."""
    endings, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    for up, gap in histories:
        age_class = np.searchsorted(AGES, spell_ages(up, gap), side="right") - 1
        for side in (0, 1):
            here = up == bool(side)
            endings[side] += np.bincount(age_class[here & spell_ends(up)], minlength=CLASSES)
            hours[side] += np.bincount(age_class[here], minlength=CLASSES) * gap / HOUR
    mean = (endings.sum(axis=1) + 1) / (hours.sum(axis=1) + 1)
    rates = (endings + 1) / (hours + 1 / mean[:, None])
    return Prior(tuple(rates[0].tolist()), tuple(rates[1].tolist()))


if __name__ == "__main__":
    main(sys.argv[1:])

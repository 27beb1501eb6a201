"""The priors of spells of spot capacity: `python -m bench.deadline_prior GLOB...`.

Prints the endings per hour of down and of up spells, by age class, over the availability traces
that the globs match. `PUBLIC_PRIOR` is that of zones that differ, of the AWS traces of October 2022
and April 2023 (`*__1-node__aws-10-*` and `*__1-node__aws-04-*`): the endings of each zone have a
factor, drawn from a Gamma distribution of mean 1 whose shape is the strength. How likely the traces
are is printed by strength.

The last line compares forecasts with the traces: how often spot that is away at any moment is back
within four hours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import inf, isinf

import numpy as np
from scipy.special import gammaln, xlogy

from bidbrain.arrays import Bools, Floats
from bidbrain.forecast.windows import drawn_capacity
from bidbrain.lab.backtest.deadline import AvailabilityHistory
from bidbrain.strategies.known_spells import UNSEEN
from bidbrain.strategies.spells import AGES, CLASSES, spell_ages, spell_ends
from pricing_data.units import HOUR
from spotctl.lab.backtest.deadline import recorded

_STRENGTHS = (2.0, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0, inf)
_WITHIN, _DRAWS = 4 * HOUR, 5000
_ROUNDS = 300
"""Until rates and factors agree with each other to more digits than are printed."""


def main(patterns: Sequence[str]) -> None:
    """Prints the pooled rates, those of zones that differ, and how likely each strength is."""
    if not patterns:
        sys.exit("usage: python -m bench.deadline_prior GLOB...")
    histories = [
        history
        for pattern in patterns
        for history in map(AvailabilityHistory.of, recorded(pattern))
    ]
    endings, hours = counted([(history.up, history.gap) for history in histories])
    for side, name in enumerate(("down", "up")):
        likely = {
            strength: likelihood(endings[:, side], hours[:, side], strength)
            for strength in _STRENGTHS
        }
        best = max(likely, key=lambda strength: likely[strength])
        print(f"{name:5}strength " + "".join(f"{strength:8g}" for strength in likely))
        print(
            f"{'':5}log-odds "
            + "".join(f"{value - likely[best]:8.1f}" for value in likely.values())
        )
        for kind, strength in (("pooled", inf), (f"apart, {best:g}", best)):
            rates = fit_rates(endings[:, side], hours[:, side], strength)
            print(f"{'':5}{kind}:", " ".join(f"{rate:.3g}" for rate in rates))
    in_traces = np.concatenate([returns(history.up, history.gap) for history in histories])
    print(
        f"back within 4 hours: {in_traces.mean():.0%} in the traces, {drawn_returns().mean():.0%} "
        "in forecasts"
    )


def returns(up: Bools, gap: int) -> Bools:
    """Whether spot is back in time, for each tick of a history at which it is away and the time
    after is recorded.
    """
    later = np.append(np.cumsum(up), np.full(_WITHIN // gap, -1))[_WITHIN // gap :][: up.size]
    known = ~up & (later >= 0)
    back: Bools = (later > np.cumsum(up))[known]
    return back


def drawn_returns() -> Bools:
    """Whether spot is back in time, for the spells that a forecast draws where nothing is known and
    it is away.
    """
    chance, back = np.random.default_rng(1), list[bool]()
    for down, up in chance.random((_DRAWS, 2)).tolist():
        times, opened = drawn_capacity(UNSEEN, 0, _WITHIN, (down, up), chance).openings
        now = int(np.searchsorted(times, 0, side="right")) - 1
        if not opened[now]:
            back.append(bool(opened[now + 1 :][times[now + 1 :] <= _WITHIN].any()))
    return np.array(back)


def counted(histories: Sequence[tuple[Bools, int]]) -> tuple[Floats, Floats]:
    """Endings and hours of each history, by side and age class."""
    endings, hours = (np.zeros((len(histories), 2, CLASSES)) for _ in range(2))
    for number, (up, gap) in enumerate(histories):
        age_class = np.searchsorted(AGES, spell_ages(up, gap), side="right") - 1
        for side in (0, 1):
            here = up == bool(side)
            endings[number, side] = np.bincount(age_class[here & spell_ends(up)], minlength=CLASSES)
            hours[number, side] = np.bincount(age_class[here], minlength=CLASSES) * gap / HOUR
    return endings, hours


def fit_rates(endings: Floats, hours: Floats, strength: float) -> Floats:
    """Endings per hour by age class; each class is shrunk towards the mean with the weight of one
    ending.

    Rates and the factors of the zones (rows) follow from each other, in turns.
    """
    mean = (endings.sum() + 1) / (hours.sum() + 1)
    rates = _rates(endings, hours, mean)
    for _ in range(0 if isinf(strength) else _ROUNDS):
        factors = (strength + endings.sum(axis=1)) / (strength + hours @ rates)
        rates = _rates(endings, factors[:, None] * hours, mean)
    return rates


def _rates(endings: Floats, hours: Floats, mean: float) -> Floats:
    rates: Floats = (endings.sum(axis=0) + 1) / (hours.sum(axis=0) + 1 / mean)
    return rates


def likelihood(endings: Floats, hours: Floats, strength: float) -> float:
    """The log-likelihood of the endings under the rates that fit a strength, whatever the factors
    are.
    """
    rates = fit_rates(endings, hours, strength)
    seen, expected = endings.sum(axis=1), hours @ rates
    by_age = float(xlogy(endings, rates).sum())
    if isinf(strength):
        return by_age - float(expected.sum())
    of_zones = gammaln(strength + seen) - gammaln(strength) + strength * np.log(strength)
    return by_age + float((of_zones - (strength + seen) * np.log(strength + expected)).sum())


if __name__ == "__main__":
    main(sys.argv[1:])

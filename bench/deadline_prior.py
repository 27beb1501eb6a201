"""The prior of the deadline strategies: `python -m bench.deadline_prior GLOB...`.

Prints the endings per hour of down and of up spells, by age class, pooled over the availability traces that the globs
match. `PUBLIC_PRIOR` is that of `*__1-node__*`, and `REGIONS_PRIOR` that of the AWS traces of October 2022 and April
2023: `*__1-node__aws-10-*` and `*__1-node__aws-04-*`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bidbrain.strategies.deadline_spells import fit_prior
from spotctl.lab.backtest.deadline import read


def main(patterns: Sequence[str]) -> None:
    """Prints both sides of the prior."""
    if not patterns:
        sys.exit("usage: python -m bench.deadline_prior GLOB...")
    histories = [history for pattern in patterns for history in read(pattern)]
    prior = fit_prior([(history.up, history.gap) for history in histories])
    for side, rates in (("down", prior.down), ("up", prior.up)):
        print(f"{side:5}", ", ".join(f"{rate:.3g}" for rate in rates))


if __name__ == "__main__":
    main(sys.argv[1:])

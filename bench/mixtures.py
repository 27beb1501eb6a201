"""Mixtures of machine kinds against every constant mixture: how much more they cost at most, and
how long they take.

`python -m bench.mixtures [PROBLEMS]`
"""

from __future__ import annotations

import sys
import time
from itertools import product
from math import inf

import numpy as np

from bidbrain.decision.mixture_solver import KindOption, MixtureTerms, SharedQuota, cheapest

_PROBLEMS = 2000


def main() -> None:
    """Prints the worst and the mean ratio, with and without quotas that kinds share."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _PROBLEMS
    for shared in (False, True):
        rng = np.random.default_rng(7)
        ratios, missed, seconds = [], 0, 0.0
        for _ in range(count):
            terms, work, hours = _problem(rng, shared=shared)
            best = _brute(terms, work, hours)
            begun = time.process_time()
            schedule = cheapest(terms, work, hours)
            seconds += time.process_time() - begun
            if best < inf and schedule is None:
                missed += 1
            elif best < inf and schedule is not None:
                ratios.append(schedule.usd / best)
        label = "quotas shared by kinds" if shared else "a limit for each kind"
        over = float(np.mean(np.array(ratios) > 1.01))
        print(
            f"{label}: {len(ratios)} of {count} possible, cost against the best constant mixture: "
            "worst"
            f" {max(ratios):.4f}, mean {np.mean(ratios):.4f}, over 1.01 in {over:.1%}; not found "
            f"{missed}; {seconds / count * 1e3:.2f} ms each"
        )


def _problem(rng: np.random.Generator, *, shared: bool) -> tuple[MixtureTerms, float, float]:
    count = int(rng.integers(2, 5))
    nu = rng.uniform(1, 10, count)
    price = nu ** rng.uniform(0.6, 1.6) * rng.uniform(0.5, 2.0, count)
    most = rng.integers(1, 8, count)
    kinds = tuple(
        KindOption(float(n), float(p), int(m)) for n, p, m in zip(nu, price, most, strict=True)
    )
    quotas: tuple[SharedQuota, ...] = ()
    if shared:
        per_machine = tuple(float(2 ** rng.integers(0, 4)) for _ in kinds)
        quotas = (SharedQuota(per_machine, float(rng.integers(8, 64))),)
    places = int(rng.integers(1, 10))
    fixed = float(rng.choice([0.0, 2.0]))
    fastest = sum(
        sorted((float(n) for n, m in zip(nu, most, strict=True) for _ in range(m)), reverse=True)[
            :places
        ]
    )
    return (
        MixtureTerms(kinds, 0, places, fixed, quotas=quotas),
        100.0,
        100.0 / fastest * float(rng.uniform(1.0, 2.5)),
    )


def _brute(terms: MixtureTerms, work: float, hours: float) -> float:
    """The least cost of a constant mixture that is in time."""
    best = inf
    for counts in product(*(range(kind.most + 1) for kind in terms.kinds)):
        rate = sum(n * kind.nu for n, kind in zip(counts, terms.kinds, strict=True))
        if not 0 < sum(counts) <= terms.most or rate * hours < work:
            continue
        if any(
            sum(n * use for n, use in zip(counts, q.per_machine, strict=True)) > q.most
            for q in terms.quotas
        ):
            continue
        usd = (
            sum(n * kind.usd_per_hour for n, kind in zip(counts, terms.kinds, strict=True))
            + terms.usd_per_hour
        )
        best = min(best, usd * work / rate)
    return best


if __name__ == "__main__":
    main()

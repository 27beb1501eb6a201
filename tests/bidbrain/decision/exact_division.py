"""Larger divisions of quotas, next to exact integer programs written from the definition.

`python -m tests.bidbrain.decision.exact_division [CASES]` draws four to six jobs on six to twelve kinds of machines in
two regions, under one to three quotas, and prints how far the sums of the smallest shares are from the best.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy import optimize

from bidbrain.arrays import Floats
from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.decision.whole_machines import MachineClaim, fairest

SEED = 41
SECONDS = 120.0
"""For one exact program; cases that take longer are not compared."""
ROUNDING = 3e-6
"""More than the solver's tolerance of whole numbers."""

Rows = list[tuple[dict[int, float], float, float]]


def case_of(number: int) -> tuple[list[MachineClaim], list[SharedQuota]]:
    """Jobs that do better on some kinds of machines than on others; some are equal in pairs."""
    rng = np.random.default_rng([SEED, number])
    kinds = np.arange(rng.integers(6, 13))
    vcpus, family = rng.choice([4.0, 8.0, 16.0, 32.0, 64.0], len(kinds)), rng.integers(0, 3, len(kinds))
    regions = tuple(tuple(kinds[kinds % 2 == region].tolist()) for region in range(2))
    claims: list[MachineClaim] = []
    for _ in range(rng.integers(4, 7)):
        value = vcpus * rng.uniform(0.5, 1.5, len(kinds))
        least = int(rng.integers(1, 3))
        made = MachineClaim(tuple((value / value.max()).tolist()), least, int(rng.integers(3, 14)), regions)
        claims.append(claims[-1] if claims and rng.random() < 0.2 else made)
    amounts = rng.choice([64.0, 96.0, 128.0, 256.0], rng.integers(1, 4)).tolist()
    return claims, [SharedQuota(tuple((vcpus * (family == q)).tolist()), most) for q, most in enumerate(amounts)]


def best_sums(claims: Sequence[MachineClaim], quotas: Sequence[SharedQuota]) -> list[float] | None:
    """The largest smallest share, then the largest sum of the two smallest with that, and so on; None if the quotas do
    not hold all jobs. TimeoutError: not solved in time.

    The sum of the k smallest shares is the least sum of any k shares.
    """
    worths = []
    for claim in claims:
        gain, rows = _possible([claim], quotas)
        worth = _largest(gain[0], rows, len(claim.value))
        if worth is None:
            return None
        worths.append(worth)
    gains, rows = _possible(claims, quotas)
    sums: list[float] = []
    level = len(claims) * len(claims[0].value) * 2
    for count in range(1, len(claims) + 1):
        wanted: Rows = []
        for some in combinations(range(len(claims)), count):
            shares = {j: value / worths[m] for m in some for j, value in gains[m].items()}
            wanted.append((shares | {level: -1.0}, 0.0, np.inf))
        best = _largest({level: 1.0}, [*rows, *wanted], len(claims[0].value))
        if best is None and not sums:
            return None
        assert best is not None, "the last division satisfies these rows"
        sums.append(best)
        rows += [({j: v for j, v in values.items() if j != level}, best - ROUNDING, np.inf) for values, _, _ in wanted]
    return sums


def _possible(claims: Sequence[MachineClaim], quotas: Sequence[SharedQuota]) -> tuple[list[dict[int, float]], Rows]:
    """The value of each job's machines, and what machines must satisfy. Columns are the machines of each kind, then
    whether a kind may be used, job by job, and last a level."""
    kinds, rows = len(claims[0].value), Rows()
    held = [[m * kinds + j for j in range(kinds)] for m in range(len(claims))]
    used = [[(len(claims) + m) * kinds + j for j in range(kinds)] for m in range(len(claims))]
    for claim, count, use in zip(claims, held, used, strict=True):
        rows.append((dict.fromkeys(count, 1.0), float(claim.least), float(claim.most)))
        rows += [({count[j]: 1.0, use[j]: -float(claim.most)}, -np.inf, 0.0) for j in range(kinds)]
        (first, second) = claim.groups
        rows += [({use[i]: 1.0, use[j]: 1.0}, -np.inf, 1.0) for i in first for j in second]
    rows += [
        ({count[j]: quota.per_machine[j] for count in held for j in range(kinds)}, -np.inf, quota.most)
        for quota in quotas
    ]
    gains = [{count[j]: claim.value[j] for j in range(kinds)} for claim, count in zip(claims, held, strict=True)]
    return gains, rows


def _largest(gain: dict[int, float], rows: Rows, kinds: int) -> float | None:
    columns = max(max(values) for values, _, _ in rows) + 1
    columns = max(columns, max(gain) + 1)
    matrix = np.zeros((len(rows), columns))
    for row, (values, _, _) in zip(matrix, rows, strict=True):
        row[list(values)] = list(values.values())
    jobs, cost = columns // (2 * kinds), np.zeros(columns)
    cost[list(gain)] = [-value for value in gain.values()]
    upper, whole = np.full(columns, np.inf), np.ones(columns, dtype=np.int64)
    upper[jobs * kinds : 2 * jobs * kinds] = 1.0
    whole[2 * jobs * kinds :] = 0
    solved = optimize.milp(
        cost,
        constraints=optimize.LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows]),
        bounds=optimize.Bounds(np.zeros(columns), upper),
        integrality=whole,
        options={"mip_rel_gap": 1e-6, "time_limit": SECONDS},
    )
    if solved.status == 1:
        raise TimeoutError
    return None if solved.x is None else -float(solved.fun)


def worst_of(claims: Sequence[MachineClaim], quotas: Sequence[SharedQuota]) -> float | None:
    """The smallest of our sums of smallest shares relative to the best ones; None if both find that the quotas do not
    hold all jobs."""
    sums, machines = best_sums(claims, quotas), fairest(tuple(claims), tuple(quotas))
    assert (sums is None) == (machines is None)
    if sums is None or machines is None:
        return None
    for quota in quotas:
        assert float((machines @ np.array(quota.per_machine)).sum()) <= quota.most
    shares: list[float] = []
    for claim, held in zip(claims, machines, strict=True):
        assert claim.least <= held.sum() <= claim.most
        assert sum(bool(held[list(group)].any()) for group in claim.groups) == 1
        gain, rows = _possible([claim], quotas)
        shares.append(float(np.array(claim.value) @ held) / (_largest(gain[0], rows, len(claim.value)) or 1.0))
    ratios: Floats = np.cumsum(sorted(shares)) / np.array(sums)
    return float(ratios.min())


def main(words: list[str]) -> None:
    """Prints each ratio below 0.999, and a summary."""
    count, ratios, refused, unsolved, took = int(words[0]) if words else 50, list[float](), 0, 0, list[float]()
    for number in range(count):
        claims, quotas = case_of(number)
        started = time.process_time()
        fairest(tuple(claims), tuple(quotas))
        took.append(time.process_time() - started)
        try:
            ratio = worst_of(claims, quotas)
        except TimeoutError:
            unsolved += 1
            continue
        if ratio is None:
            refused += 1
            continue
        ratios.append(ratio)
        if ratio < 0.999:
            print(f"case {number}: {ratio:.4f} of the best", flush=True)
    print(
        f"{count} cases: {len(ratios)} compared, {refused} refused, {unsolved} not solved exactly; lowest ratio"
        f" {min(ratios, default=1.0):.4f}, {sum(ratio < 0.99 for ratio in ratios)} below 0.99"
    )
    print(f"processor time of a division: at most {max(took):.1f} s, mean {np.mean(took):.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])

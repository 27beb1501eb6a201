"""Random jobs under quotas, divided by the planner and by brute force over whole machines.

`python -m tests.spotctl.planning.brute_division [CASES]` prints how far the planner is from the brute force.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf
from typing import cast

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from spotctl.files.job.spec import Objective
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.allocation import AllocatedJob, JobCandidates, KindColumns, PlanCandidates
from spotctl.planning.demand import Demand, places
from spotctl.planning.division import divide
from spotctl.planning.errors import NotInTime
from spotctl.planning.job import Job
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_groups import QuotaGroup
from spotctl.planning.work import JobLength

SEED = 20
TOLERANCE = 0.01
REASON = re.compile(
    r"(\d+) machines? would use (\d+) (\S+) of quota (\S+), which has (\d+)(?:; this job's part is (\d+))?"
)


@dataclass(frozen=True)
class Case:
    """Jobs, kinds with their prices, and quotas."""

    jobs: tuple[Demand, ...]
    columns: KindColumns


def case_of(number: int, seed: int = SEED) -> Case:
    """Two to six jobs, of which some are equal, on one to three kinds under one to three quotas."""
    chance = np.random.default_rng([seed, number])
    regions = ["east"] * 3 if chance.random() < 0.7 else ["east", "east", "west"]
    kinds = tuple(MachineKind("aws", region, f"k{j}.x") for j, region in enumerate(regions[: chance.integers(1, 4)]))
    price = chance.choice([0.1, 0.25, 0.4, 1.0], len(kinds))
    objective = Objective(chance.choice(["min-cost", "max-throughput"]))
    jobs: list[Demand] = []
    for _ in range(chance.integers(2, 7)):
        if jobs and chance.random() < 0.5:
            jobs.append(replace(jobs[-1], name=f"job{len(jobs)}"))
            continue
        nu = chance.choice([1.0, 2.0, 3.0, 8.0], len(kinds)) * (chance.random(len(kinds)) < 0.8)
        nu[chance.integers(len(kinds))] += 1.0
        least = int(chance.integers(1, 3))
        most = least + int(chance.integers(0, 4))
        length = JobLength("drawn", units=float(chance.integers(4, 40)))
        hours_left = float(chance.choice([inf, inf, 10.0, 30.0])) if objective is Objective.MIN_COST else inf
        gang = bool(chance.random() < 0.3)
        name = f"job{len(jobs)}"
        jobs.append(Demand(name, objective, nu, least, most, length, most * nu.max(), hours_left, None, gang))
    groups = []
    for number_of_quota in range(chance.integers(1, 4)):
        uses = chance.choice([0.0, 1.0, 2.0, 4.0], len(kinds))
        quota = Quota("aws", None, f"q{number_of_quota}", int(chance.integers(2, 17)), QuotaUnit.VCPUS)
        groups.append(QuotaGroup(quota, uses, float(quota.amount)))
    rows = tuple((j,) for j in range(len(kinds)))
    columns = KindColumns(tuple(range(len(kinds))), kinds, rows, price, np.ones(len(kinds)), tuple(groups))
    return Case(tuple(jobs), columns)


def divided(case: Case) -> list[AllocatedJob] | None:
    """The planner's division; None if a job cannot run at all, or not in time."""
    jobs = tuple(JobCandidates(cast("Job", None), job, {}, 0, ()) for job in case.jobs)
    try:
        return divide(PlanCandidates(jobs, case.columns), 0.0)
    except NotInTime:
        return None


def values(case: Case, job: Demand) -> FloatArray:
    """The worth of one machine of each kind: work per hour, or per dollar."""
    return job.nu if job.objective is Objective.MAX_THROUGHPUT else job.nu / case.columns.usd_per_hour


def options(case: Case, job: Demand) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """All ways to hold whole machines, with their use of each quota."""
    groups = case.columns.quotas
    own = [[j] for j in range(len(job.nu))] if job.gang else [place.tolist() for place in places(case.columns.kinds)]
    every = product(*(range(job.most + 1 if nu > 0 else 1) for nu in job.nu))
    return [
        (held, tuple(float(group.per_machine @ held) for group in groups))
        for held in every
        if job.least <= sum(held) <= job.most
        and any(sum(held[j] for j in place) == sum(held) for place in own)
        and (not job.hurries or float(job.nu @ held) * job.hours_left >= job.amount * (1 - 1e-9))
    ]


def brute(case: Case, jobs: Sequence[Demand]) -> list[float] | None:
    """The fairest shares, smallest first; None if the quotas do not hold all jobs at the same time.

    Of partial divisions that use as much of each quota, only the fairest can be part of the fairest whole.
    """
    best: dict[tuple[float, ...], list[float]] = {(0.0,) * len(case.columns.quotas): []}
    for job in jobs:
        alone, ways = most_alone(case, job), options(case, job)
        reached: dict[tuple[float, ...], list[float]] = {}
        for used, shares in best.items():
            for held, use in ways:
                total = tuple(a + b for a, b in zip(used, use, strict=True))
                if all(a <= group.most for a, group in zip(total, case.columns.quotas, strict=True)):
                    new = sorted([*shares, float(values(case, job) @ held) / alone])
                    reached[total] = max(reached.get(total, []), new)
        best = reached
    return max(best.values(), default=None)


def most_alone(case: Case, job: Demand) -> float:
    """The most worth of machines that a job could hold alone."""
    groups = case.columns.quotas
    fitting = (
        float(values(case, job) @ held)
        for held, use in options(case, job)
        if all(a <= group.most for a, group in zip(use, groups, strict=True))
    )
    return max(fitting, default=0.0)


def first_turn(case: Case) -> list[Demand]:
    """The jobs that begin at the launch: in their order, each that the quotas hold next to those before."""
    begun: list[Demand] = []
    for job in sorted(case.jobs, key=lambda job: job.hours_left if job.hurries else inf):
        if brute(case, [*begun, job]) is not None:
            begun.append(job)
    return begun


def worst(case: Case) -> float:
    """The planner's sum of the k smallest shares relative to the brute force's: the smallest of such ratios.

    Also checks that equal jobs are treated equally, that quotas hold at all times, and that the stated reasons are
    true.
    """
    allocated = divided(case)
    if allocated is None:
        check_refusal(case)
        return 1.0
    check_quotas(case, allocated)
    check_reasons(case, allocated)
    begin_at_once = {job.name for job in first_turn(case)}
    together = [job for job in allocated if job.demand.name in begin_at_once]
    if all(share.is_enough for job in allocated for share in job.quotas):
        return 1.0
    assert {job.demand.name for job in allocated if not job.share.turn.begin} == begin_at_once
    check_equality(case, together)
    shares = [
        float(values(case, job.demand) @ job.share.turn.machines) / most_alone(case, job.demand) for job in together
    ]
    best = brute(case, [job.demand for job in together])
    assert best is not None
    return float((np.cumsum(sorted(shares)) / np.cumsum(best)).min())


def check_refusal(case: Case) -> None:
    """A job is refused if it cannot run alone, or if others use the quotas until it would be too late."""
    cannot = [job for job in case.jobs if brute(case, [job]) is None]
    assert cannot or any(job.hurries for job in case.jobs)


def check_quotas(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    for group, g in zip(case.columns.quotas, range(len(case.columns.quotas)), strict=True):
        for begin in {job.share.turn.begin for job in allocated}:
            running = [job for job in allocated if job.share.turn.begin <= begin < job.share.turn.end]
            if not all(job.quotas[g].is_enough for job in allocated):
                assert sum(job.quotas[g].part.amount for job in running) <= group.most
    for job in allocated:
        demand, held = job.demand, job.share.turn.machines
        if held:
            assert demand.least <= sum(held) <= demand.most
            assert all(count <= cap for count, cap in zip(held, job.share.caps, strict=True))


def check_equality(case: Case, together: Sequence[AllocatedJob]) -> None:
    """Equal jobs in one region differ by at most one machine, and the job that is named first has more."""
    for first, second in pairwise(together):
        if not np.array_equal(first.demand.nu, second.demand.nu) or len(places(case.columns.kinds)) > 1:
            continue
        if replace(second.demand, name=first.demand.name, nu=first.demand.nu) == first.demand:
            worth = values(case, first.demand)
            more = float(worth @ first.share.turn.machines) - float(worth @ second.share.turn.machines)
            assert -1e-6 <= more <= worth.max() + 1e-6


def check_reasons(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """The figures of each reason are those of the division, and they explain that the job gets no such machines."""
    for job in allocated:
        lacking = {j for j, cap in enumerate(job.share.caps) if job.demand.nu[j] > 0 and cap < job.demand.least}
        assert lacking == set(job.share.lacking)
        for j, reason in job.share.lacking.items():
            matched = REASON.fullmatch(reason)
            assert matched is not None, reason
            count, used, _, name, amount, part = matched.groups()
            share, group = next(
                (share, group)
                for share, group in zip(job.quotas, case.columns.quotas, strict=True)
                if share.quota.name == name
            )
            assert int(count) == job.demand.least
            assert int(used) == job.demand.least * group.per_machine[j] > int(part or amount)
            assert (int(amount), int(part or amount)) == (share.quota.amount, share.part.amount)


def cases(count: int) -> Iterator[Case]:
    return (case_of(number) for number in range(count))


def main(words: list[str]) -> None:
    """Prints the ratio of each case that is below 1, and a summary."""
    count = int(words[0]) if words else 1000
    ratios, waiting, refused = [], 0, 0
    for number, case in enumerate(cases(count)):
        ratios.append(worst(case))
        allocated = divided(case)
        refused += allocated is None
        waiting += allocated is not None and any(job.share.turn.begin for job in allocated)
        if ratios[-1] < 1 - 1e-9:
            print(f"case {number}: {ratios[-1]:.4f} of the best")
    below = sum(ratio < 1 - TOLERANCE for ratio in ratios)
    print(f"{count} cases: {refused} refused, {waiting} with turns; lowest ratio {min(ratios):.4f}, {below} below 0.99")


if __name__ == "__main__":
    main(sys.argv[1:])

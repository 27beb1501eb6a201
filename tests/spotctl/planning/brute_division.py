"""Random jobs under quotas, divided by the planner and by brute force over whole machines.

`python -m tests.spotctl.planning.brute_division [CASES]` prints how far the planner is from the brute force.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise, permutations, product
from math import inf, isfinite
from typing import cast

import numpy as np
import pytest

from bidbrain.arrays import Floats
from spotctl.files.job.spec import Objective
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.candidates import KindColumns, aim_of
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import MachineKind, places
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.share import divide
from spotctl.planning.values import AllocatedJob, Demand, Job, JobLength

SEED = 20
TOLERANCE = 0.01
ROUNDING = 1e-9
REASON = re.compile(
    r"(\d+) machines? would use (\d+) (\S+) of quota (\S+), which has (\d+)(?:; this job's part is (\d+))?"
)


Use = tuple[float, ...]
"""How much of each quota is used, or free."""
Options = list[tuple[tuple[int, ...], Use]]
Division = tuple[list[float], tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Case:
    """Jobs, kinds with their prices, quotas, and how long machines start."""

    jobs: tuple[Demand, ...]
    columns: KindColumns
    startup_hours: float = 0.0

    def use_of(self, held: Sequence[int]) -> Use:
        return tuple(float(group.per_machine @ held) for group in self.columns.quotas)

    def free(self, used: Sequence[Use] = ()) -> Use:
        return tuple(group.most - sum(use[g] for use in used) for g, group in enumerate(self.columns.quotas))

    def named(self, name: str) -> Demand:
        return next(job for job in self.jobs if job.name == name)


def case_of(number: int, seed: int = SEED) -> Case:
    """Two to six jobs, some of them equal, on one to three kinds under one to three quotas."""
    chance = np.random.default_rng([seed, number])
    regions = ["east"] * 3 if chance.random() < 0.7 else ["east", "east", "west"]
    kinds = tuple(MachineKind("aws", region, f"k{j}.x") for j, region in enumerate(regions[: chance.integers(1, 4)]))
    price = chance.choice([0.1, 0.25, 0.4, 1.0], len(kinds))
    objective = Objective(chance.choice(["min-cost", "max-throughput", "makespan-within-budget"]))
    jobs: list[Demand] = []
    for _ in range(chance.integers(2, 7)):
        equal = jobs and chance.random() < 0.5
        made = jobs[-1] if equal else _job_of(chance, objective, price)
        jobs.append(replace(made, name=f"job{len(jobs)}"))
    groups = []
    for number_of_quota in range(chance.integers(1, 4)):
        uses = chance.choice([0.0, 1.0, 2.0, 4.0], len(kinds))
        quota = Quota("aws", None, f"q{number_of_quota}", int(chance.integers(2, 17)), QuotaUnit.VCPUS)
        groups.append(QuotaGroup(quota, uses, float(quota.amount)))
    if len(kinds) > 1 and chance.random() < 0.2:
        # Only the first job may use the last kind, by a quota of its own.
        jobs[1:] = [replace(job, nu=np.array([*np.maximum(job.nu[:-1], 1.0), 0.0])) for job in jobs[1:]]
        quota = Quota("aws", None, "own", int(chance.integers(2, 9)), QuotaUnit.VCPUS)
        groups.append(QuotaGroup(quota, np.array([0.0] * (len(kinds) - 1) + [2.0]), float(quota.amount)))
    rows = tuple((j,) for j in range(len(kinds)))
    columns = KindColumns(tuple(range(len(kinds))), kinds, rows, price, np.ones(len(kinds)), tuple(groups))
    return Case(tuple(jobs), columns, float(chance.choice([0.0, 0.0, 0.5])))


def _job_of(chance: np.random.Generator, objective: Objective, price: Floats) -> Demand:
    nu = chance.choice([1.0, 2.0, 3.0, 8.0], len(price)) * (chance.random(len(price)) < 0.8)
    nu[chance.integers(len(price))] += 1.0
    least = int(chance.integers(1, 3))
    most = least + int(chance.integers(0, 4))
    length = JobLength("drawn", units=float(chance.integers(4, 40)))
    if chance.random() < 0.1:
        length = JobLength("assumed", hours=1.0, assumed=True)
    hours_left = float(chance.choice([inf, inf, 10.0, 30.0]))
    lasts = float(chance.integers(2, 20)) if chance.random() < 0.2 and not length.assumed else None
    budget = None
    if objective is Objective.MAKESPAN_WITHIN_BUDGET and chance.random() < 0.7:
        work = nu > 0
        budget = float((price[work] / nu[work]).min() * length.amount(most * nu.max()) * chance.choice([1.0, 1.3, 3.0]))
    gang = bool(chance.random() < 0.3)
    reference = most * nu.max()
    made = Demand("", objective, nu, least, most, length, reference, hours_left, budget, gang=gang, lasts_hours=lasts)
    return with_limits(made)


def with_limits(job: Demand) -> Demand:
    """A demand whose deadline and objective decide about it."""
    unknown = job.work.assumed
    hurries, aim = isfinite(job.hours_left) and not unknown, aim_of(job.objective, is_unknown=unknown)
    return replace(job, hurries=hurries, aim=aim)


def divided(case: Case) -> list[AllocatedJob] | None:
    """The planner's division; None if a job cannot run at all, or not within its limits."""
    jobs = [(cast("Job", None), job) for job in case.jobs]
    try:
        return divide(jobs, case.columns, case.startup_hours)
    except (NotInTime, OverBudget):
        return None


def values(case: Case, job: Demand) -> Floats:
    """The worth of one machine of each kind: work per dollar, or per hour."""
    return job.nu / case.columns.usd_per_hour if job.objective is Objective.MIN_COST else job.nu


def options(case: Case, job: Demand, at: float) -> Options:
    """All ways to hold whole machines from some hours after the launch, with their use of each quota."""
    own = [[j] for j in range(len(job.nu))] if job.gang else [place.tolist() for place in places(case.columns.kinds)]
    every = product(*(range(job.most + 1 if nu > 0 else 1) for nu in job.nu))
    return [
        (held, case.use_of(held))
        for held in every
        if job.least <= sum(held) <= job.most
        and any(sum(held[j] for j in place) == sum(held) for place in own)
        and _keeps_limits(case, job, held, at)
    ]


def _keeps_limits(case: Case, job: Demand, held: tuple[int, ...], at: float) -> bool:
    if job.work.assumed:
        return True
    hours = job.amount / float(job.nu @ held)
    in_time = not isfinite(job.hours_left) or hours <= (job.hours_left - at) * (1 + ROUNDING)
    return in_time and (
        job.budget_usd is None or hours * float(case.columns.usd_per_hour @ held) <= job.budget_usd * (1 + ROUNDING)
    )


def division(case: Case, jobs: Sequence[Demand], free: Use, at: float) -> Division | None:
    """The fairest shares, smallest first, and the machines of each job; None if the quotas do not hold all jobs at the
    same time.

    Of partial divisions that use as much of each quota, only the fairest can be part of the fairest whole.
    """
    best: dict[Use, Division] = {(0.0,) * len(free): ([], ())}
    for job in jobs:
        worth = values(case, job)
        ways = [(held, use) for held, use in options(case, job, at) if fits(use, free)]
        alone = max((float(worth @ held) for held, _ in ways), default=0.0)
        reached: dict[Use, Division] = {}
        for used, (shares, every) in best.items():
            for held, use in ways:
                total = tuple(a + b for a, b in zip(used, use, strict=True))
                if fits(total, free):
                    new = (sorted([*shares, float(worth @ held) / alone]), (*every, held))
                    reached[total] = max(reached.get(total, ([], ())), new)
        best = reached
    return max(best.values(), default=None)


def fits(use: Use, free: Use) -> bool:
    return all(a <= b + ROUNDING for a, b in zip(use, free, strict=True))


def lasts(case: Case, job: Demand, held: Sequence[int]) -> float:
    """How long a job takes, from the launch of its machines."""
    if job.work.assumed:
        return inf
    return job.lasts_hours or case.startup_hours + job.amount / float(job.nu @ held)


def by_urgency(case: Case) -> list[Demand]:
    """The earliest deadlines first; then the jobs that are shortest by forecast, or on all machines they could use."""
    usable = np.all([group.per_machine <= group.most for group in case.columns.quotas], axis=0)

    def rank(job: Demand) -> tuple[float, float]:
        if job.work.assumed or job.hurries:
            return (inf, inf) if job.work.assumed else (job.hours_left, 0.0)
        hours = job.amount / max(job.most * float((job.nu * usable).max()), 1e-9)
        return inf, job.lasts_hours or (job.work.longest if job.work.timed else min(hours, job.work.longest))

    return sorted(case.jobs, key=rank)


def is_in_time(case: Case, order: Sequence[Demand], *, overtakes: bool) -> bool:
    """Whether jobs keep their limits if they begin in some order; a later one that fits `overtakes` one that does not,
    or waits for it."""
    waiting, running, at = list(order), list[tuple[float, Use]](), 0.0
    while waiting:
        free = case.free([use for _, use in running])
        begun: list[Demand] = []
        for job in waiting:
            if division(case, [*begun, job], free, at) is not None:
                begun.append(job)
            elif not overtakes:
                break
        if begun:
            _, machines = cast("Division", division(case, begun, free, at))
            running += [
                (at + lasts(case, job, held), case.use_of(held)) for job, held in zip(begun, machines, strict=True)
            ]
        waiting = [job for job in waiting if job not in begun]
        if waiting and not running:
            return False
        if waiting:
            running.sort(key=lambda run: run[0])
            at = running[0][0]
            running = running[1:] if at == inf else [run for run in running if run[0] > at]
    return True


def worst(case: Case) -> float | None:
    """The planner's sum of the k smallest shares of a turn relative to the brute force's: the smallest of such ratios.
    None if there is nothing to compare: all jobs are refused, or get all that they can use.

    Also checks that quotas hold at all times, that no job waits longer than it must, that equal jobs are treated
    equally, and that refusals and stated reasons are true.
    """
    allocated = divided(case)
    if allocated is None:
        check_refusal(case)
        return None
    check_enough(case, allocated)
    check_reasons(case, allocated)
    if all(share.is_enough for job in allocated for share in job.share.quotas):
        return None
    check_quotas(case, allocated)
    check_lengths(case, allocated)
    follows_deadlines = is_in_time(case, by_urgency(case), overtakes=True)
    ratios = []
    for begin in sorted({job.share.turn.begin for job in allocated if job.share.turn.begin < inf}):
        together = [job for job in allocated if job.share.turn.begin == begin]
        check_equality(case, together)
        ratios.append(_ratio(case, allocated, together, begin))
    if follows_deadlines:
        check_order(case, allocated)
    return min(ratios)


def _ratio(case: Case, allocated: Sequence[AllocatedJob], together: Sequence[AllocatedJob], begin: float) -> float:
    """The planner's shares of a turn relative to the best ones in what other jobs leave."""
    before = [job for job in allocated if job.share.turn.begin < begin < job.share.turn.end]
    free = case.free([case.use_of(job.share.turn.machines) for job in before])
    demands = [case.named(job.demand.name) for job in together]
    best = division(case, demands, free, begin)
    assert best is not None
    shares = []
    for demand, job in zip(demands, together, strict=True):
        alone = division(case, [demand], free, begin)
        assert alone is not None
        worth = values(case, demand)
        shares.append(float(worth @ job.share.turn.machines) / float(worth @ alone[1][0]))
    return float((np.cumsum(sorted(shares)) / np.cumsum(best[0])).min())


def check_order(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """Whenever jobs end, each job that still waits fits next to no more than some of those before it."""
    turns = {job.demand.name: job.share.turn for job in allocated}
    for at in {0.0, *(turn.end for turn in turns.values() if turn.end < inf)}:
        running = [turn for turn in turns.values() if turn.begin < at < turn.end]
        free = case.free([case.use_of(turn.machines) for turn in running])
        begun: list[Demand] = []
        for job in by_urgency(case):
            if turns[job.name].begin == at:
                begun.append(job)
            elif turns[job.name].begin > at:
                assert division(case, [*begun, job], free, at) is None, f"{job.name} could begin at {at}"


def check_refusal(case: Case) -> None:
    """A job is refused if it cannot run alone, or if no order of turns keeps the limits of all."""
    if any(division(case, [job], case.free(), 0.0) is None for job in case.jobs):
        return
    assert not any(
        is_in_time(case, order, overtakes=overtakes) for order in permutations(case.jobs) for overtakes in (True, False)
    ), "refused, but there is an order of turns"


def check_enough(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """A quota is enough only if all jobs together could not use more of it."""
    for g, group in enumerate(case.columns.quotas):
        most = [
            max((use[g] for _, use in options(case, job, 0.0) if fits(use, case.free())), default=0.0)
            for job in case.jobs
        ]
        assert len({job.share.quotas[g].is_enough for job in allocated}) == 1
        assert not allocated[0].share.quotas[g].is_enough or sum(most) <= group.most
        assert not allocated[0].share.quotas[g].is_enough or all(
            job.share.quotas[g].slice.amount == group.most for job in allocated
        )


def check_quotas(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """The machines of all jobs are within the quotas at all times, and those of a job within its part."""
    for begin in {job.share.turn.begin for job in allocated if job.share.turn.begin < inf}:
        running = [job for job in allocated if job.share.turn.begin <= begin < job.share.turn.end]
        assert min(case.free([case.use_of(job.share.turn.machines) for job in running])) >= -ROUNDING
    for job in allocated:
        demand, turn = case.named(job.demand.name), job.share.turn
        ways = options(case, demand, turn.begin if turn.begin < inf else 0.0)
        assert (turn.machines, case.use_of(turn.machines)) in ways
        assert fits(case.use_of(turn.machines), tuple(float(share.slice.amount) for share in job.share.quotas))
        assert all(count <= cap for count, cap in zip(turn.machines, job.share.caps, strict=True))
        for share in job.share.quotas:
            (part,) = (part for part in share.slices if part.job == demand.name)
            assert 0 <= part.least <= part.amount == share.slice.amount


def check_lengths(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """A turn begins at the launch or at the end of another one, and lasts as long as its job."""
    ends = {job.share.turn.end for job in allocated}
    for job in allocated:
        turn, demand = job.share.turn, case.named(job.demand.name)
        assert turn.begin == 0.0 or turn.begin in ends
        assert turn.end == pytest.approx(turn.begin + lasts(case, demand, turn.machines))


def check_equality(case: Case, together: Sequence[AllocatedJob]) -> None:
    """Of equal jobs, the one that is named first has no less; where their machines may be mixed, they differ by at most
    one machine."""
    for first, second in pairwise(together):
        if are_equal(first.demand, second.demand):
            worth = values(case, first.demand)
            more = float(worth @ first.share.turn.machines) - float(worth @ second.share.turn.machines)
            assert more >= -ROUNDING
            machines = sum(first.share.turn.machines) - sum(second.share.turn.machines)
            mixes = len(places(case.columns.kinds)) == 1 and not first.demand.gang
            assert not mixes or more <= worth.max() + ROUNDING or machines == 1, f"{more} of {worth}"


def are_equal(first: Demand, second: Demand) -> bool:
    """Whether two jobs differ only by their names."""
    names = [field.name for field in fields(Demand) if field.name != "name"]
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


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
                for share, group in zip(job.share.quotas, case.columns.quotas, strict=True)
                if share.quota.name == name
            )
            assert int(count) == job.demand.least
            assert int(used) == job.demand.least * group.per_machine[j] > int(part or amount)
            assert (int(amount), int(part or amount)) == (share.quota.amount, share.slice.amount)


def cases(count: int) -> Iterator[Case]:
    return (case_of(number) for number in range(count))


def main(words: list[str]) -> None:
    """Prints the ratio of each case that is below 1, what is wrong with a case, and a summary."""
    count = int(words[0]) if words else 1000
    ratios, refused, later, wrong = list[float](), 0, 0, 0
    for number, case in enumerate(cases(count)):
        try:
            ratio = worst(case)
        except AssertionError as error:
            wrong += 1
            print(f"case {number}: {traceback.extract_tb(error.__traceback__)[-1].name}: {error}")
            continue
        allocated = divided(case)
        refused += allocated is None
        later += allocated is not None and any(job.share.turn.begin for job in allocated)
        if ratio is not None:
            ratios.append(ratio)
            if ratio < 1 - 1e-9:
                print(f"case {number}: {ratio:.4f} of the best")
    below = sum(ratio < 1 - TOLERANCE for ratio in ratios)
    print(
        f"{count} cases: {len(ratios)} compared, {refused} refused, {later} with turns, {wrong} wrong; lowest ratio"
        f" {min(ratios):.4f}, {below} below 0.99"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Random jobs under quotas, divided by the planner and by brute force over whole machines.

`python -m tests.spotctl.planning.brute_division [CASES]` prints how far the planner is from the
brute force.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import inf, isfinite
from typing import cast

import numpy as np

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


@dataclass(frozen=True)
class Case:
    """Jobs, kinds with their prices, quotas, and how long machines start."""

    jobs: tuple[Demand, ...]
    columns: KindColumns
    startup_hours: float = 0.0

    def use_of(self, held: Sequence[int]) -> Use:
        return tuple(float(group.per_machine @ held) for group in self.columns.quotas)

    def free(self, used: Sequence[Use] = ()) -> Use:
        return tuple(
            group.most - sum(use[g] for use in used) for g, group in enumerate(self.columns.quotas)
        )

    def named(self, name: str) -> Demand:
        return next(job for job in self.jobs if job.name == name)


def case_of(number: int, seed: int = SEED) -> Case:
    """Two to six jobs, some of them equal, on one to three kinds under one to three quotas."""
    chance = np.random.default_rng([seed, number])
    regions = ["east"] * 3 if chance.random() < 0.7 else ["east", "east", "west"]
    kinds = tuple(
        MachineKind("aws", region, f"k{j}.x")
        for j, region in enumerate(regions[: chance.integers(1, 4)])
    )
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
        quota = Quota(
            "aws", None, f"q{number_of_quota}", int(chance.integers(2, 17)), QuotaUnit.VCPUS
        )
        groups.append(QuotaGroup(quota, uses, float(quota.amount)))
    if len(kinds) > 1 and chance.random() < 0.2:
        # Only the first job may use the last kind, by a quota of its own.
        jobs[1:] = [
            replace(job, nu=np.array([*np.maximum(job.nu[:-1], 1.0), 0.0])) for job in jobs[1:]
        ]
        quota = Quota("aws", None, "own", int(chance.integers(2, 9)), QuotaUnit.VCPUS)
        groups.append(
            QuotaGroup(quota, np.array([0.0] * (len(kinds) - 1) + [2.0]), float(quota.amount))
        )
    rows = tuple((j,) for j in range(len(kinds)))
    columns = KindColumns(
        tuple(range(len(kinds))), kinds, rows, price, np.ones(len(kinds)), tuple(groups)
    )
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
    pace = float(chance.uniform(0.8, 2.0)) if chance.random() < 0.2 and not length.assumed else 1.0
    budget = None
    if objective is Objective.MAKESPAN_WITHIN_BUDGET and chance.random() < 0.7:
        work = nu > 0
        budget = float(
            (price[work] / nu[work]).min()
            * length.amount(most * nu.max())
            * chance.choice([1.0, 1.3, 3.0])
        )
    gang = bool(chance.random() < 0.3)
    reference = most * nu.max()
    made = Demand(
        "", objective, nu, least, most, length, reference, hours_left, budget, gang=gang, pace=pace
    )
    return with_limits(made)


def with_limits(job: Demand) -> Demand:
    """A demand whose deadline and objective decide about it."""
    unknown = job.work.assumed
    hurries, aim = (
        isfinite(job.hours_left) and not unknown,
        aim_of(job.objective, is_unknown=unknown),
    )
    return replace(job, hurries=hurries, aim=aim)


def divided(case: Case) -> list[AllocatedJob] | None:
    """The planner's division; None if a job cannot run at all, or not within its limits."""
    jobs = [(cast("Job", None), job) for job in case.jobs]
    try:
        return divide(jobs, case.columns, case.startup_hours)
    except (NotInTime, OverBudget):
        return None


def options(case: Case, job: Demand, at: float) -> Options:
    """All ways to hold whole machines from some hours after the launch, with their use of each
    quota.
    """
    own = (
        [[j] for j in range(len(job.nu))]
        if job.gang
        else [place.tolist() for place in places(case.columns.kinds)]
    )
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
    hours = job.amount * job.pace / float(job.nu @ held)
    in_time = not isfinite(job.hours_left) or hours <= (job.hours_left - at) * (1 + ROUNDING)
    return in_time and (
        job.budget_usd is None
        or hours * float(case.columns.usd_per_hour @ held) <= job.budget_usd * (1 + ROUNDING)
    )


def fits(use: Use, free: Use) -> bool:
    return all(a <= b + ROUNDING for a, b in zip(use, free, strict=True))


def is_in_time(case: Case, order: Sequence[Demand]) -> bool:
    """Whether jobs keep their deadlines if each begins in this order with the most machines that
    are free, and keeps them."""
    running, at, waiting = list[tuple[float, Use]](), 0.0, list(order)
    while waiting:
        for job in list(waiting):
            free = case.free([use for _, use in running])
            ways = [held for held, use in options(case, job, at) if fits(use, free)]
            if ways:
                held = max(ways, key=lambda held: float(job.nu @ held))
                hours = (
                    inf
                    if job.work.assumed
                    else case.startup_hours + job.amount * job.pace / float(job.nu @ held)
                )
                running.append((at + hours, case.use_of(held)))
                waiting.remove(job)
        if waiting and not running:
            return False
        if waiting:
            running.sort(key=lambda run: run[0])
            at, running = running[0][0], running[1:]
    return True


def check(case: Case) -> list[AllocatedJob] | None:
    """The planner's division; None if it refuses a job.

    Quotas hold at all times, parts are what jobs can use, deadlines are kept, and refusals and
    stated reasons are true.
    """
    allocated = divided(case)
    if allocated is None:
        check_refusal(case)
        return None
    check_enough(case, allocated)
    check_reasons(case, allocated)
    if not all(share.is_enough for job in allocated for share in job.share.quotas):
        check_quotas(case, allocated)
        check_lengths(case, allocated)
    return allocated


def check_refusal(case: Case) -> None:
    """A job is refused if it cannot run alone, or if no order keeps the limits of all."""
    if all(options(case, job, 0.0) for job in case.jobs):
        assert not any(is_in_time(case, order) for order in permutations(case.jobs)), (
            "refused, but an order keeps all"
        )


def check_enough(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """A quota is enough only if all jobs together could not use more of it."""
    for g, group in enumerate(case.columns.quotas):
        most = [
            max(
                (use[g] for _, use in options(case, job, 0.0) if fits(use, case.free())),
                default=0.0,
            )
            for job in case.jobs
        ]
        assert len({job.share.quotas[g].is_enough for job in allocated}) == 1
        assert not allocated[0].share.quotas[g].is_enough or sum(most) <= group.most
        assert not allocated[0].share.quotas[g].is_enough or all(
            job.share.quotas[g].slice.amount == group.most for job in allocated
        )


def check_quotas(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """The machines of all jobs are within the quotas at all times, and the first of a job within
    its part.
    """
    every = [(part, job) for job in allocated for part in job.share.turn.parts]
    for begin in {part.begin for part, _ in every}:
        running = [part for part, _ in every if part.begin <= begin < part.end - ROUNDING]
        assert min(case.free([case.use_of(part.machines) for part in running])) >= -ROUNDING
    for part, job in every:
        demand = replace(case.named(job.demand.name), hours_left=inf, budget_usd=None)
        if any(part.machines):
            assert (part.machines, case.use_of(part.machines)) in options(case, demand, 0.0)
    for job in allocated:
        turn = job.share.turn
        assert fits(
            case.use_of(turn.machines),
            tuple(float(share.slice.amount) for share in job.share.quotas),
        )
        assert all(count <= cap for count, cap in zip(turn.machines, job.share.caps, strict=True))
        for share in job.share.quotas:
            (own,) = (part for part in share.slices if part.job == job.demand.name)
            assert 0 <= own.amount <= share.slice.amount


def check_lengths(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """Each job of a known length does its work in its turn, and keeps its deadline."""
    for job in allocated:
        turn, demand = job.share.turn, case.named(job.demand.name)
        assert turn.begin < inf
        assert not demand.hurries or turn.end <= demand.hours_left + case.startup_hours + TOLERANCE
        if not demand.work.assumed:
            done = sum(
                float(demand.nu @ part.machines) * (part.end - part.begin)
                for part in job.share.turn.parts
            )
            starts = case.startup_hours * len(turn.parts) * demand.most * float(demand.nu.max())
            assert (
                demand.amount * demand.pace * (1 - TOLERANCE)
                <= done
                <= (demand.amount * demand.pace * (1 + TOLERANCE) + starts)
            )


def check_reasons(case: Case, allocated: Sequence[AllocatedJob]) -> None:
    """The figures of each reason are those of the division, and they explain that the job gets no
    such machines.
    """
    for job in allocated:
        lacking = {
            j
            for j, cap in enumerate(job.share.caps)
            if job.demand.nu[j] > 0 and cap < job.demand.least
        }
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
    """Prints what is wrong with a case, and a summary."""
    count = int(words[0]) if words else 1000
    refused, later, wrong = 0, 0, 0
    for number, case in enumerate(cases(count)):
        try:
            allocated = check(case)
        except AssertionError as error:
            wrong += 1
            print(f"case {number}: {traceback.extract_tb(error.__traceback__)[-1].name}: {error}")
            continue
        refused += allocated is None
        later += allocated is not None and any(job.share.turn.begin for job in allocated)
    print(f"{count} cases: {refused} refused, {later} with jobs that wait, {wrong} wrong")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The scheduler of a queue: who holds which machines in a round, and when jobs end if it is played
forward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.gavel import POLICIES
from bidbrain.queue.outlook import JobOutlook, outlook
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import (
    FreeQuota,
    JobQueue,
    QueueJob,
    QueueQuota,
    QueueRound,
    QueueTerms,
    QueueUser,
)

HOUR = 3600.0


def job(name: str, work: float | None, **fields: object) -> QueueJob:
    """Work in hours of one machine of the only type."""
    values = {"rates": {"c4": 1.0}, "arrival": 0.0, "since": 0.0, "swap_seconds": 300.0, **fields}
    return QueueJob(name=name, work=work, **values)  # type: ignore[arg-type]


def queue(*jobs: QueueJob, machines: int = 2, **fields: object) -> JobQueue:
    return JobQueue(0.0, (QueueQuota("c4", float(machines), {"c4": 1.0}),), jobs, **fields)  # type: ignore[arg-type]


def holding(given: QueueJob, machines: int, **fields: object) -> QueueJob:
    """Holds machines for an hour already."""
    values = {"held": {"c4": machines}, "since": -HOUR, "arrival": -HOUR, **fields}
    return replace(given, **values)  # type: ignore[arg-type]


def ends(planned: tuple[JobOutlook, ...]) -> list[float]:
    """In hours."""
    return [round((each.end if each.end is not None else np.inf) / HOUR, 2) for each in planned]


def random_queue(seed: int, policy: str) -> JobQueue:
    """Jobs of two users on three types, two of which share a quota."""
    rng = np.random.default_rng(seed)
    kinds = ("a", "b", "c")
    jobs = []
    for number in range(int(rng.integers(1, 9))):
        least = int(rng.integers(1, 4))
        usable = [kind for kind in kinds if rng.random() < 0.8] or ["a"]
        jobs.append(
            QueueJob(
                f"j{number}",
                {kind: float(rng.uniform(1, 10)) for kind in usable},
                arrival=-float(rng.integers(0, 9)) * HOUR,
                since=0.0,
                user=str(rng.choice(["ann", "bob"])),
                weight=float(rng.choice([1.0, 5.0])),
                work=float(10 ** rng.uniform(0, 3)),
                least=least,
                most=least + int(rng.integers(0, 4)),
                gang=bool(rng.random() < 0.5),
                deadline=float(rng.uniform(1, 300)) * HOUR if rng.random() < 0.3 else None,
                swap_seconds=float(rng.choice([0.0, 300.0])),
            )
        )
    quotas = (QueueQuota("vcpus", 24.0, {"a": 4.0, "b": 8.0}), QueueQuota("c", 3.0, {"c": 1.0}))
    prices = {"a": 0.2, "b": 0.5, "c": 1.0}
    users = {"ann": QueueUser(2.0), "bob": QueueUser(1.0, "fifo")}
    return JobQueue(0.0, quotas, tuple(jobs), QueueTerms(policy, users), prices, 1e5)


@pytest.mark.parametrize("policy", ["mean-completion", *POLICIES])
def test_quotas_and_jobs_limits_hold_in_every_round_and_a_row_of_the_log_decides_again_the_same(
    policy: str,
) -> None:
    for seed in range(6):
        current = random_queue(seed, policy)
        last: QueueRound | None = None
        for _ in range(4):
            decided = next_round(current, last)
            for quota in current.quotas:
                used = sum(
                    quota.per_machine.get(kind, 0.0) * count
                    for machines in decided.machines.values()
                    for kind, count in machines.items()
                )
                assert used <= quota.amount
            for each in current.jobs:
                machines = decided.machines.get(each.name, {})
                assert not machines or each.least <= sum(machines.values()) <= each.most
                assert not each.gang or len(machines) <= 1
                assert machines.keys() <= each.rates.keys()
            assert next_round(current, last) == decided
            seconds = current.terms.round_seconds
            current, last = after(current, decided, seconds), decided


@pytest.mark.parametrize(
    "policy",
    [
        "mean-completion",
        *(name for name in POLICIES if "cost" not in name and "budget" not in name),
    ],
)
def test_no_machine_is_idle_that_a_job_could_begin_or_grow_with(policy: str) -> None:
    """Policies of cost leave machines idle on purpose, and so does a budget."""
    for seed in range(20, 40):
        current, last = random_queue(seed, policy), None
        for _ in range(4):
            decided = next_round(current, last)
            free = FreeQuota(current)
            for machines in decided.machines.values():
                for kind, count in machines.items():
                    free.take(kind, count)
            for each in current.jobs:
                mine = decided.machines.get(each.name, {})
                step = 1 if mine else each.least
                if sum(mine.values()) + step <= each.most and not each.is_complete():
                    fitting = [
                        kind
                        for kind in each.rates
                        if each.joins(kind, mine) and free.machines(kind) >= step
                    ]
                    assert not fitting, (seed, each.name, mine)
            current, last = after(current, decided, current.terms.round_seconds), decided


def test_x_of_a_published_policy_is_new_if_a_job_comes_ends_or_changes() -> None:
    jobs = queue(job("a", 10), job("b", 30), machines=1, terms=QueueTerms("makespan"))
    first = next_round(jobs)
    later = replace(
        jobs,
        now=360.0,
        jobs=tuple(replace(each, work=(each.work or 0) - 0.1) for each in jobs.jobs),
    )
    assert next_round(later, first).shares is first.shares
    faster = replace(later.jobs[0], rates={"c4": 2.0})
    for changed in (later.jobs[1:], (*later.jobs, job("c", 5)), (faster, later.jobs[1])):
        fresh = next_round(replace(later, jobs=changed), first).shares
        assert fresh == next_round(replace(later, jobs=changed)).shares
        assert fresh != first.shares
    by_deadlines = replace(jobs, terms=QueueTerms("min-cost-slo"), usd_per_hour={"c4": 1.0})
    assert (
        next_round(by_deadlines, next_round(by_deadlines)).shares
        is not next_round(by_deadlines).shares
    )


def test_the_budget_of_a_queue_is_that_of_its_jobs() -> None:
    terms, prices = QueueTerms("makespan-within-budget"), {"c4": 1.0}
    rich, poor = (job(name, 10, budget_usd=usd) for name, usd in (("a", 50.0), ("b", 5.0)))
    assert not next_round(queue(rich, poor, terms=terms, usd_per_hour=prices)).remarks
    (remark,) = next_round(
        queue(replace(rich, budget_usd=6.0), poor, terms=terms, usd_per_hour=prices)
    ).remarks
    assert "20" in remark
    assert next_round(
        queue(rich, replace(poor, budget_usd=None), terms=terms, usd_per_hour=prices)
    ).remarks == ("no budget: not every job has one",)


def after(given: JobQueue, decided: QueueRound, seconds: float) -> JobQueue:
    """The queue once the round has passed, if no job ends."""
    jobs = []
    for each in given.jobs:
        held = decided.machines.get(each.name, {})
        received = {
            kind: each.received.get(kind, 0.0) + count * seconds for kind, count in held.items()
        }
        since = each.since if bool(held) == bool(each.held) else given.now
        jobs.append(replace(each, held=held, since=since, received={**each.received, **received}))
    return replace(given, now=given.now + seconds, jobs=tuple(jobs))


def test_each_of_two_jobs_with_opposite_preferences_gets_what_suits_it() -> None:
    quotas = (QueueQuota("a", 1.0, {"a": 1.0}), QueueQuota("b", 1.0, {"b": 1.0}))
    one = QueueJob("one", {"a": 10.0, "b": 2.0}, 0.0, 0.0, work=100, most=2)
    two = QueueJob("two", {"a": 2.0, "b": 10.0}, 0.0, 0.0, work=100, most=2)
    for policy in ("mean-completion", "max-min-fairness", "makespan", "max-throughput"):
        decided = next_round(JobQueue(0.0, quotas, (one, two), QueueTerms(policy)))
        assert decided.machines == {"one": {"a": 1}, "two": {"b": 1}}, policy
        # An equal split of both types would do 6 units of work an hour of each job.
        assert ends(outlook(decided.queue)) == [10.0, 10.0]


def test_machines_stay_where_a_swap_would_not_pay() -> None:
    waiting = job("short", 0.1)
    for holder, reason in (
        (holding(job("long", 0.05, most=2), 2), "less than a swap"),
        (holding(job("long", 50, most=2), 2, since=-10.0), "less than a round ago"),
        (holding(job("long", 50, most=2), 2, paid_until=1800.0), "paid for another 1800 s"),
    ):
        decided = next_round(queue(holder, waiting))
        assert decided.machines == {"long": {"c4": 2}}
        assert reason in decided.kept["long"]
    free = next_round(queue(holding(job("long", 50, most=2), 2), waiting))
    assert free.machines["short"] == {"c4": 1}
    assert not free.kept


@pytest.mark.parametrize("policy", ["mean-completion", *POLICIES])
def test_a_job_that_would_lose_its_work_keeps_its_machines_and_begins_at_any_time(
    policy: str,
) -> None:
    long = job("long", 50, most=3, gang=True, interruptible=False)
    # A gang of processes that began together gets no further machines, either.
    holder, short = holding(long, 2), job("short", 0.1, deadline=0.2 * HOUR)
    jobs = queue(
        holder,
        short,
        machines=3,
        terms=QueueTerms(policy),
        usd_per_hour={"c4": 1.0},
        budget_usd=1e5,
    )
    decided = next_round(jobs)
    assert decided.machines["long"] == {"c4": 2}
    assert decided.kept["long"] == "would lose its work"
    assert next_round(replace(jobs, jobs=(long,))).machines["long"]["c4"] >= 1


def test_under_fairness_machines_change_hands_only_after_a_debt_of_ten_swaps() -> None:
    jobs = [job(name, 30) for name in "ab"]
    planned = outlook(queue(*jobs, machines=1, terms=QueueTerms("max-min-fairness")))
    turns = [turn.end - turn.start for each in planned for turn in each.turns[:-1]]
    assert min(turns) >= 10 * 300
    # Little time is lost to swaps.
    assert max(ends(planned)) <= 60 * 1.06
    free = outlook(
        queue(
            *(replace(each, swap_seconds=0.0) for each in jobs),
            machines=1,
            terms=QueueTerms("max-min-fairness"),
        )
    )
    assert len(free[0].turns) > 10 * len(planned[0].turns)


def test_users_share_by_weight_however_many_jobs_they_have() -> None:
    jobs = [
        job("a", 100, user="ann", most=9),
        *(job(f"b{n}", 10, user="bob", most=9) for n in range(5)),
    ]
    even = next_round(queue(*jobs, machines=6))
    assert even.machines == {"a": {"c4": 3}, "b0": {"c4": 3}}
    heavy = next_round(queue(*jobs, machines=6, terms=QueueTerms(users={"bob": QueueUser(2.0)})))
    assert heavy.machines == {"a": {"c4": 2}, "b0": {"c4": 4}}
    few = next_round(queue(replace(jobs[0], most=1), *jobs[1:], machines=6))
    assert few.machines == {"a": {"c4": 1}, "b0": {"c4": 5}}
    hurried = replace(jobs[0], deadline=20 * HOUR)
    urgent = next_round(queue(hurried, *jobs[1:], machines=6))
    assert urgent.machines["a"]["c4"] >= 5


def test_gangs_and_small_jobs_take_turns_and_nobody_starves() -> None:
    jobs = [
        job("gang", 8, least=2, most=2, gang=True, swap_seconds=0.0),
        job("one", 4, swap_seconds=0.0),
    ]
    planned = outlook(queue(*jobs, terms=QueueTerms("max-min-fairness")))
    assert max(ends(planned)) < 9
    assert len(planned[0].turns) > 1

"""Queues of jobs without a policy, played forward, against the best list schedules: `python -m
bench.gavel_queue`. `python -m bench.gavel_queue turn` prints the processor time of a round, and of
the queue played forward.

In a list schedule jobs begin in one order, each as soon as its least number of machines is free,
keep their machines until they end, and grow into what is left. The best of all orders is taken
twice: that of the least mean completion time, and that of the least makespan. Cases, list schedules
and the play are our own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from bidbrain.gavel import POLICIES
from bidbrain.queue.order import ends_of, listed
from bidbrain.queue.outlook import outlook, played
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueTerms

CASES = 64


def case(seed: int) -> JobQueue:
    """Three to six jobs of very different lengths under one or two small quotas; a third of the
    jobs are gangs.
    """
    rng = np.random.default_rng([seed, 62])
    kinds = [f"type{number}" for number in range(int(rng.integers(1, 3)))]
    quotas = tuple(QueueQuota(kind, float(rng.integers(2, 9)), {kind: 1.0}) for kind in kinds)
    room = int(max(quota.amount for quota in quotas))
    jobs = []
    for number in range(int(rng.integers(3, 7))):
        least = int(rng.integers(1, max(2, room // 2 + 1)))
        most = int(rng.integers(least, room + 1))
        rates = {kind: float(rng.uniform(0.3, 1.0)) for kind in kinds}
        work = float(10 ** rng.uniform(0, 1.7))
        gang = bool(rng.random() < 1 / 3)
        runs = {
            kind: rates[kind]
            for kind, quota in zip(kinds, quotas, strict=True)
            if quota.amount >= least
        }
        jobs.append(
            QueueJob(
                f"j{number}",
                runs,
                0.0,
                0.0,
                work=work,
                least=least,
                most=most,
                gang=gang,
                swap_seconds=300.0,
            )
        )
    return JobQueue(0.0, quotas, tuple(jobs))


def _figures(ends: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(ends)), max(ends)


def compared(queue: JobQueue) -> list[tuple[float, float]]:
    """Mean completion time and makespan of the queue, and of jobs in the order of their names, as
    parts of the best.
    """
    kinds = {kind: queue.machines(kind) for kind in queue.types()}
    ends = [ends_of(queue, listed(order, kinds), {}) for order in permutations(queue.jobs)]
    figures = [_figures(list(each.values())) for each in ends]
    best = tuple(map(min, zip(*figures, strict=True)))
    ours = [planned.end or float("inf") for planned in outlook(queue)]
    return [(mean / best[0], last / best[1]) for mean, last in (_figures(ours), figures[0])]


def bounded(queue: JobQueue, seed: int) -> list[bool]:
    """Whether each job ends within its bounds, if lengths are known within a half to twice."""
    rng = np.random.default_rng([seed, 63])
    lengths = {job.name: (job.work or 0.0) * float(rng.uniform(0.5, 2.0)) for job in queue.jobs}
    unsure = [
        replace(job, work_low=0.5 * (job.work or 0.0), work_high=2.0 * (job.work or 0.0), work=None)
        for job in queue.jobs
    ]
    queue = replace(queue, jobs=tuple(unsure))
    true = played(queue, None, lengths)
    return [
        (planned.earliest_end or 0.0)
        <= (true[planned.name].end or 0.0)
        <= (planned.latest_end or float("inf"))
        and (planned.earliest_start or 0.0) <= true[planned.name].turns[0].start
        for planned in outlook(queue)
    ]


def crowd(jobs: int, quotas: int, policy: str, users: int, seed: int = 0) -> JobQueue:
    """Many jobs on one to five of some types each, under a quota for each type; most quotas are in
    use. A third are gangs, and a third have deadlines."""
    rng = np.random.default_rng([seed, 64])
    kinds = [f"type{number}" for number in range(quotas)]
    limits = tuple(QueueQuota(kind, float(rng.integers(4, 17)), {kind: 1.0}) for kind in kinds)
    free, waiting = {limit.name: int(limit.amount) for limit in limits}, []
    for number in range(jobs):
        some = rng.choice(kinds, int(rng.integers(1, 6)), replace=False).tolist()
        least = int(rng.integers(1, 3))
        most = int(rng.integers(least, 9))
        own = next((kind for kind in some if free[kind] >= least), None)
        held = {} if own is None or rng.random() < 0.2 else {own: min(free[own], most)}
        for kind, count in held.items():
            free[kind] -= count
        waiting.append(
            QueueJob(
                f"j{number}",
                {kind: float(rng.uniform(0.3, 1)) for kind in some},
                arrival=0.0,
                since=0.0,
                user=f"user{number % users}",
                weight=float(rng.choice([1.0, 1.0, 2.0])),
                work=float(10 ** rng.uniform(0, 1.7)),
                least=least,
                most=most,
                gang=bool(rng.random() < 1 / 3),
                deadline=float(rng.uniform(10, 400)) * 3600 if rng.random() < 1 / 3 else None,
                received={kind: 3600.0 * count for kind, count in held.items()},
                held=held,
                swap_seconds=300.0,
            )
        )
    prices = {kind: float(rng.uniform(0.2, 3)) for kind in kinds}
    return JobQueue(7200.0, limits, tuple(waiting), QueueTerms(policy), prices, 1e5)


def turns(jobs: int, quotas: int) -> None:
    """Prints what a first round, the one after it, and the whole play take, by policy."""
    for users in (1, 3):
        for policy in ("mean-completion", *POLICIES):
            queue, times, previous = crowd(jobs, quotas, policy, users), [], None
            for _ in range(2):
                started = time.process_time()
                previous = next_round(queue, previous)
                times.append(time.process_time() - started)
                moved = [
                    replace(job, held=previous.machines.get(job.name, {})) for job in queue.jobs
                ]
                queue = replace(queue, now=queue.now + queue.terms.round_seconds, jobs=tuple(moved))
            started = time.process_time()
            outlook(crowd(jobs, quotas, policy, users))
            times.append(time.process_time() - started)
            print(
                f"{jobs} jobs of {users} users, {policy}: first {times[0]:.3f} s, next "
                f"{times[1]:.3f} s,",
                end=" ",
            )
            print(f"outlook {times[2]:.1f} s", flush=True)


def main(words: Sequence[str]) -> None:
    """Prints median, ninth decile and worst of the ratios, and how many ends are within their
    bounds.
    """
    if words[:1] == ["turn"]:
        turns(*map(int, words[1:] or ("200", "20")))
        return
    queues = [case(seed) for seed in range(int(words[0]) if words else CASES)]
    cases = [compared(queue) for queue in queues]
    for row, which in enumerate(("no policy", "in the order of names")):
        for place, what in enumerate(("mean completion time", "makespan")):
            ratios = [case[row][place] for case in cases]
            median, ninth = np.quantile(ratios, [0.5, 0.9])
            figures = f"median {median:.3f}, p90 {ninth:.3f}, worst {max(ratios):.3f}"
            print(f"{which}: {what} over that of the best list: {figures}")
    within = [inside for seed, queue in enumerate(queues) for inside in bounded(queue, seed)]
    print(
        f"ends within the bounds of their plan, lengths known within a half to twice: "
        f"{np.mean(within):.1%}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

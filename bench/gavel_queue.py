"""Queues of jobs without a policy, played forward, against the best list schedules: `python -m bench.gavel_queue`.

In a list schedule jobs begin in one order, each as soon as its least number of machines is free, keep their machines
until they end, and grow into what is left. The best of all orders is taken twice: that of the least mean completion
time, and that of the least makespan. Cases, list schedules and the play are our own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from bench.gavel_outlook import outlook, played
from bidbrain.gavel.order import ends_of, listed
from bidbrain.gavel.queue import JobQueue, QueueJob, QueueQuota

CASES = 64


def case(seed: int) -> JobQueue:
    """Three to six jobs of very different lengths under one or two small quotas; a third of the jobs are gangs."""
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
        runs = {kind: rates[kind] for kind, quota in zip(kinds, quotas, strict=True) if quota.amount >= least}
        jobs.append(
            QueueJob(f"j{number}", runs, 0.0, 0.0, work=work, least=least, most=most, gang=gang, swap_seconds=300.0)
        )
    return JobQueue(0.0, quotas, tuple(jobs))


def _figures(ends: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(ends)), max(ends)


def compared(queue: JobQueue) -> list[tuple[float, float]]:
    """Mean completion time and makespan of the queue, and of jobs in the order of their names, as parts of the best."""
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
        (planned.earliest_end or 0.0) <= (true[planned.name].end or 0.0) <= (planned.latest_end or float("inf"))
        and (planned.earliest_start or 0.0) <= true[planned.name].turns[0].start
        for planned in outlook(queue)
    ]


def main(words: Sequence[str]) -> None:
    """Prints median, ninth decile and worst of the ratios, and how many ends are within their bounds."""
    queues = [case(seed) for seed in range(int(words[0]) if words else CASES)]
    cases = [compared(queue) for queue in queues]
    for row, which in enumerate(("no policy", "in the order of names")):
        for place, what in enumerate(("mean completion time", "makespan")):
            ratios = [case[row][place] for case in cases]
            median, ninth = np.quantile(ratios, [0.5, 0.9])
            figures = f"median {median:.3f}, p90 {ninth:.3f}, worst {max(ratios):.3f}"
            print(f"{which}: {what} over that of the best list: {figures}")
    within = [inside for seed, queue in enumerate(queues) for inside in bounded(queue, seed)]
    print(f"ends within the bounds of their plan, lengths known within a half to twice: {np.mean(within):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])

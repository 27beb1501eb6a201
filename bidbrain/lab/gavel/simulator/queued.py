"""The dispatcher of queues: what runs in a round is what `bidbrain.queue.scheduler` decides."""

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.lab.gavel.rounds import NO_JOB, RoundCandidates
from bidbrain.lab.gavel.workload import ClusterSimulation
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueRound, QueueTerms, QueueUser


class Queued:
    """A queue whose quotas are the workers of the cluster; each job is a gang of as many machines
    as it has workers.
    """

    def __init__(
        self, scenario: ClusterSimulation, policy: str, budget_usd: float | None = None
    ) -> None:
        workload = scenario.workload
        cluster = scenario.cluster
        self._scenario = scenario
        self._budget = budget_usd
        self._quotas = tuple(
            QueueQuota(kind, float(count), {kind: 1.0})
            for kind, count in zip(cluster.types, cluster.workers, strict=True)
        )
        prices = cluster.usd_per_hour
        self._prices = (
            {} if prices is None else dict(zip(cluster.types, prices.tolist(), strict=True))
        )
        users = {
            entity.name: QueueUser(entity.weight, entity.policy) for entity in workload.entities
        }
        self._terms = QueueTerms(policy, users, scenario.round_seconds)
        self._rates = workload.rates / workload.scale[:, None] * 3600
        self._deadline = workload.arrival + workload.slo_factor * workload.alone_seconds()
        self._received: dict[int, dict[str, float]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self._last: QueueRound | None = None
        self._chosen = RoundCandidates(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
        self.allocations = 0
        self.patience = scenario.round_seconds

    def dispatch(
        self,
        now: float,
        active: Ints,
        steps_left: Floats,
        *,
        changed: bool,  # noqa: ARG002
    ) -> RoundCandidates:
        """The jobs that hold machines in the scheduler's next round."""
        budget = None
        if self._budget is not None:
            received = [part for mine in self._received.values() for part in mine.items()]
            spent = sum(
                (self._prices.get(kind, 0.0) * seconds / 3600 for kind, seconds in received), 0.0
            )
            budget = max(self._budget - spent, 1e-9)

        jobs = {str(m): m for m in active.tolist()}
        queue = JobQueue(
            now,
            self._quotas,
            tuple(self._job(m, steps_left) for m in jobs.values()),
            self._terms,
            self._prices,
            budget,
        )

        self._last = next_round(queue, self._last)
        self.allocations += 1
        rows = [
            (jobs[name], kind)
            for name, machines in self._last.machines.items()
            for kind in machines
        ]

        self._held = {
            job: (kind, self._held[job][1] if job in self._held else now) for job, kind in rows
        }
        first = np.array([job for job, _ in rows], dtype=np.int64)
        types = np.array(
            [self._scenario.cluster.types.index(kind) for _, kind in rows], dtype=np.int64
        )
        self._chosen = RoundCandidates(
            first, np.full(len(first), NO_JOB), types, self._scenario.workload.scale[first]
        )

        return self._chosen

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Adds the machine time of the round."""
        types = self._scenario.cluster.types
        scale = self._scenario.workload.scale
        for job, kind, time in zip(
            self._chosen.first.tolist(), self._chosen.type.tolist(), seconds.tolist(), strict=True
        ):
            mine = self._received.setdefault(job, {})
            mine[types[kind]] = mine.get(types[kind], 0.0) + time * int(scale[job])
        for job in finished.tolist():
            self._held.pop(job, None)

    def _job(self, m: int, steps_left: Floats) -> QueueJob:
        scenario = self._scenario
        workload = self._scenario.workload
        arrival = float(workload.arrival[m])
        deadline = float(self._deadline[m])
        kind, since = self._held.get(m, ("", arrival))
        workers = int(workload.scale[m])
        of_types = zip(scenario.cluster.types, self._rates[m].tolist(), strict=True)
        rates = {name: rate for name, rate in of_types if rate}

        return QueueJob(
            name=str(m),
            rates=rates,
            arrival=arrival,
            since=since,
            user=workload.owner[m] if workload.entities else "",
            weight=float(workload.weight[m]),
            work=float(steps_left[m]),
            least=workers,
            most=workers,
            gang=True,
            deadline=deadline if np.isfinite(deadline) else None,
            received=dict(self._received.get(m, {})),
            held={kind: workers} if kind else {},
            swap_seconds=scenario.checkpoint_seconds,
        )

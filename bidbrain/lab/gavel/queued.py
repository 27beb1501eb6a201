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
        kinds = zip(cluster.types, cluster.workers, strict=True)
        quotas = (QueueQuota(kind, float(count), {kind: 1.0}) for kind, count in kinds)
        self._quotas = tuple(quotas)
        prices = cluster.usd_per_hour
        self._prices = (
            {} if prices is None else dict(zip(cluster.types, prices.tolist(), strict=True))
        )
        users = {
            entity.name: QueueUser(entity.weight, entity.policy) for entity in workload.entities
        }
        self._terms = QueueTerms(policy, users, scenario.round_seconds)
        per_worker = workload.rates / workload.scale[:, None]
        self._rates = per_worker * 3600
        self._deadline = workload.arrival + workload.slo_factor * workload.alone_seconds()
        self._received: dict[int, dict[str, float]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self._last: QueueRound | None = None
        nothing = (np.zeros(0, dtype=np.int64) for _ in range(4))
        self._chosen = RoundCandidates(*nothing)
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
            usd_of_parts = []
            for kind, seconds in received:
                usd_per_hour = self._prices.get(kind, 0.0)
                usd_of_parts.append(usd_per_hour * seconds / 3600)
            spent = sum(usd_of_parts, 0.0)
            budget = max(self._budget - spent, 1e-9)

        jobs = {str(m): m for m in active.tolist()}
        queued_jobs = tuple(self._job(m, steps_left) for m in jobs.values())
        queue = JobQueue(now, self._quotas, queued_jobs, self._terms, self._prices, budget)

        self._last = next_round(queue, self._last)
        self.allocations += 1
        held_now = self._last.machines.items()
        rows = [(jobs[name], kind) for name, machines in held_now for kind in machines]

        self._held = {
            job: (kind, self._held[job][1] if job in self._held else now) for job, kind in rows
        }
        first = np.array([job for job, _ in rows], dtype=np.int64)
        kinds_of_rows = [self._scenario.cluster.types.index(kind) for _, kind in rows]
        types = np.array(kinds_of_rows, dtype=np.int64)
        nobody = np.full(len(first), NO_JOB)
        scales = self._scenario.workload.scale[first]
        self._chosen = RoundCandidates(first, nobody, types, scales)

        return self._chosen

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Adds the machine time of the round."""
        types = self._scenario.cluster.types
        scale = self._scenario.workload.scale
        jobs_chosen = self._chosen.first.tolist()
        types_chosen = self._chosen.type.tolist()
        for job, kind, time in zip(jobs_chosen, types_chosen, seconds.tolist(), strict=True):
            mine = self._received.setdefault(job, {})
            before = mine.get(types[kind], 0.0)
            worked = time * int(scale[job])
            mine[types[kind]] = before + worked
        for job in finished.tolist():
            self._held.pop(job, None)

    def _job(self, m: int, steps_left: Floats) -> QueueJob:
        scenario = self._scenario
        workload = self._scenario.workload
        arrival = float(workload.arrival[m])
        deadline = float(self._deadline[m])
        kind, since = self._held.get(m, ("", arrival))
        workers = int(workload.scale[m])
        rates_of_types = self._rates[m].tolist()
        of_types = zip(scenario.cluster.types, rates_of_types, strict=True)
        rates = {name: rate for name, rate in of_types if rate}

        user = workload.owner[m] if workload.entities else ""
        hurry = deadline if np.isfinite(deadline) else None
        received = dict(self._received.get(m, {}))
        held = {kind: workers} if kind else {}
        return QueueJob(
            name=str(m),
            rates=rates,
            arrival=arrival,
            since=since,
            user=user,
            weight=float(workload.weight[m]),
            work=float(steps_left[m]),
            least=workers,
            most=workers,
            gang=True,
            deadline=hurry,
            received=received,
            held=held,
            swap_seconds=scenario.checkpoint_seconds,
        )

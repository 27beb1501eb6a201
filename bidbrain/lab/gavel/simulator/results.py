"""Results of a simulation: per job, and in total."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.gavel.simulator.engine import SimulationOutcome

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One measured job. Unknown values are None: the cost without prices, `slo_met` without a
    deadline.
    """

    job: str
    kind: str
    scale: int
    arrival_seconds: float
    finish_seconds: float
    jct_seconds: float
    held_seconds: dict[str, float]
    moves: int
    finish_time_fairness: float
    slo_seconds: float | None
    slo_met: bool | None
    cost_usd: float | None
    weight: float
    entity: str
    spread_seconds: float
    dropped: bool


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The measured jobs of one entity, or of one priority."""

    name: str
    """Entity or priority."""
    jobs: int
    """Number of its jobs."""
    average_jct_seconds: float
    """Mean time from a job's arrival to its end."""
    finish_time_fairness: float
    """Mean time to the end, as a multiple of the time with an equal share of the cluster."""


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """Summary over the measured jobs; the utilization is that of the whole cluster.

    `groups` are the jobs by entity, or by priority; empty if all are alike. `spread` is the share
    of the worker time of jobs on more than one worker that was spread over servers; None where
    servers do not matter.
    """

    average_jct_seconds: float
    makespan_seconds: float
    utilization: float
    cost_usd: float | None
    slo_violations: int | None
    finish_time_fairness: float
    moves_per_job: float
    jobs: int
    groups: tuple[JobGroup, ...] = ()
    spread: float | None = None


def job_results(outcome: SimulationOutcome) -> list[SimulatedJob]:
    """The measured jobs, by arrival."""
    scenario = outcome.scenario
    workload = scenario.workload
    types = scenario.cluster.types
    jct = outcome.finish - workload.arrival
    fairness = finish_time_fairness(outcome)
    slo = workload.slo_factor * workload.alone_seconds()
    usd_per_hour = scenario.cluster.usd_per_hour
    cost: Floats | None = None
    if usd_per_hour is not None:
        cost = np.asarray(outcome.held_seconds @ usd_per_hour / _SECONDS_PER_HOUR * workload.scale)

    results = []
    for m in scenario.measured:
        kind = workload.throughputs.kinds[int(workload.kind[m])]
        deadline = float(slo[m]) if np.isfinite(slo[m]) else None
        results.append(
            SimulatedJob(
                job=workload.names[m],
                kind=kind.name,
                scale=kind.scale,
                arrival_seconds=float(workload.arrival[m]),
                finish_seconds=float(outcome.finish[m]),
                jct_seconds=float(jct[m]),
                held_seconds=dict(zip(types, outcome.held_seconds[m].tolist(), strict=True)),
                moves=int(outcome.moves[m]),
                finish_time_fairness=float(fairness[m]),
                slo_seconds=deadline,
                slo_met=None if deadline is None else bool(jct[m] <= deadline),
                cost_usd=None if cost is None else float(cost[m]),
                weight=float(workload.weight[m]),
                entity=workload.owner[m] if workload.entities else "",
                spread_seconds=float(outcome.spread_seconds[m]),
                dropped=bool(outcome.dropped[m]),
            )
        )

    return results


def _groups(results: Sequence[SimulatedJob]) -> tuple[JobGroup, ...]:
    """By entity where jobs have one, else by priority where they differ."""
    by_name: dict[str, list[SimulatedJob]] = {}
    for job in sorted(results, key=lambda job: (job.entity, job.weight)):
        by_name.setdefault(job.entity or f"priority {job.weight:g}", []).append(job)
    if len(by_name) == 1 and not results[0].entity:
        return ()

    return tuple(
        JobGroup(
            name,
            len(jobs),
            float(np.mean([job.jct_seconds for job in jobs])),
            float(np.mean([job.finish_time_fairness for job in jobs])),
        )
        for name, jobs in by_name.items()
    )


def summarize(outcome: SimulationOutcome) -> SimulationSummary:
    """The makespan is from the first measured arrival to the last measured finish."""
    results = job_results(outcome)
    done = [result for result in results if not result.dropped]
    held = [result.slo_met for result in results if result.slo_met is not None]
    costs = [result.cost_usd for result in results if result.cost_usd is not None]
    last = max(result.finish_seconds for result in results)

    # Worker-seconds of jobs on several workers, and those that they had on several servers.
    wide = sum(sum(job.held_seconds.values()) * job.scale for job in results if job.scale > 1)
    spread = sum(job.spread_seconds * job.scale for job in results)
    per_server = outcome.scenario.per_server

    return SimulationSummary(
        average_jct_seconds=float(np.mean([result.jct_seconds for result in done])),
        makespan_seconds=last - results[0].arrival_seconds,
        utilization=utilization(outcome),
        cost_usd=sum(costs) if costs else None,
        slo_violations=held.count(False) if held else None,
        finish_time_fairness=float(np.mean([result.finish_time_fairness for result in results])),
        moves_per_job=float(np.mean([result.moves for result in results])),
        jobs=len(done),
        groups=_groups(results),
        spread=None if per_server is None else spread / max(wide, 1.0),
    )


def utilization(outcome: SimulationOutcome) -> float:
    """Busy worker-seconds over available ones, from the first round to the last."""
    there = outcome.scenario.cluster.workers.sum() * (outcome.end - outcome.round_start[0])
    return float(outcome.busy_worker_seconds.sum() / there)


def finish_time_fairness(outcome: SimulationOutcome) -> Floats:
    """rho: a job's time over its time with an exclusive 1/n of every type while n jobs are active
    (section 5.4.2).

    n is the number of active jobs in this simulation. Infinite for unfinished jobs.
    """
    scenario = outcome.scenario
    workload = scenario.workload
    workers = scenario.cluster.workers
    total = workers.sum()
    rate = np.where(workload.scale[:, None] <= workers, workload.rates, 0.0) @ (workers / total)
    rho = np.full(len(rate), np.inf)
    times, there = _population(outcome)

    for scale in np.unique(workload.scale).tolist():
        share = np.minimum(total / (np.maximum(there, 1) * scale), 1.0)
        received = np.concatenate([[0.0], np.cumsum(np.diff(times) * share[:-1])])
        finished = np.flatnonzero((workload.scale == scale) & np.isfinite(outcome.finish))
        arrival = workload.arrival[finished]
        target = np.interp(arrival, times, received) + workload.steps[finished] / rate[finished]
        alone = (
            np.interp(target, received, times)
            + np.maximum(target - received[-1], 0.0) / share[-1]
            - arrival
        )
        rho[finished] = (outcome.finish[finished] - arrival) / alone

    return rho


def _population(outcome: SimulationOutcome) -> tuple[Floats, Floats]:
    """Number of active jobs, from each time before the end at which it changed."""
    arrival = outcome.scenario.workload.arrival
    came = arrival[arrival < outcome.end]
    went = outcome.finish[outcome.finish < outcome.end]
    events = np.concatenate([came, went])
    order = np.argsort(events, kind="stable")
    there = np.cumsum(np.concatenate([np.ones(len(came)), -np.ones(len(went))])[order])
    return events[order], there

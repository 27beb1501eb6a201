"""Results of a simulation: per job, and in total."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.gavel.engine import SimulationOutcome

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
        usd_of_workers = outcome.held_seconds @ usd_per_hour
        cost = np.asarray(usd_of_workers / _SECONDS_PER_HOUR * workload.scale)

    results = []
    for m in scenario.measured:
        kind = workload.throughputs.kinds[int(workload.kind[m])]
        deadline = None
        if np.isfinite(slo[m]):
            deadline = float(slo[m])
        seconds = outcome.held_seconds[m].tolist()
        held = dict(zip(types, seconds, strict=True))
        slo_met = None
        if deadline is not None:
            slo_met = bool(jct[m] <= deadline)
        cost_of_job = None
        if cost is not None:
            cost_of_job = float(cost[m])
        entity = workload.owner[m] if workload.entities else ""
        result = SimulatedJob(
            job=workload.names[m],
            kind=kind.name,
            scale=kind.scale,
            arrival_seconds=float(workload.arrival[m]),
            finish_seconds=float(outcome.finish[m]),
            jct_seconds=float(jct[m]),
            held_seconds=held,
            moves=int(outcome.moves[m]),
            finish_time_fairness=float(fairness[m]),
            slo_seconds=deadline,
            slo_met=slo_met,
            cost_usd=cost_of_job,
            weight=float(workload.weight[m]),
            entity=entity,
            spread_seconds=float(outcome.spread_seconds[m]),
            dropped=bool(outcome.dropped[m]),
        )
        results.append(result)

    return results


def _groups(results: Sequence[SimulatedJob]) -> tuple[JobGroup, ...]:
    """By entity where jobs have one, else by priority where they differ."""
    by_name: dict[str, list[SimulatedJob]] = {}
    for job in sorted(results, key=lambda job: (job.entity, job.weight)):
        group_name = job.entity or f"priority {job.weight:g}"
        by_name.setdefault(group_name, []).append(job)
    if len(by_name) == 1 and not results[0].entity:
        return ()

    groups = []
    for name, jobs in by_name.items():
        mean_jct = np.mean([job.jct_seconds for job in jobs])
        mean_fairness = np.mean([job.finish_time_fairness for job in jobs])
        groups.append(JobGroup(name, len(jobs), float(mean_jct), float(mean_fairness)))
    return tuple(groups)


def summarize(outcome: SimulationOutcome) -> SimulationSummary:
    """The makespan is from the first measured arrival to the last measured finish."""
    results = job_results(outcome)
    done = [result for result in results if not result.dropped]
    held = [result.slo_met for result in results if result.slo_met is not None]
    costs = [result.cost_usd for result in results if result.cost_usd is not None]
    last = max(result.finish_seconds for result in results)

    # Worker-seconds of jobs on several workers, and those that they had on several servers.
    held_by_wide = []
    for job in results:
        if job.scale > 1:
            held_of_job = sum(job.held_seconds.values())
            held_by_wide.append(held_of_job * job.scale)
    wide = sum(held_by_wide)
    spread = sum(job.spread_seconds * job.scale for job in results)
    per_server = outcome.scenario.per_server

    mean_jct = np.mean([result.jct_seconds for result in done])
    makespan = last - results[0].arrival_seconds
    cost = sum(costs) if costs else None
    violations = held.count(False) if held else None
    mean_fairness = np.mean([result.finish_time_fairness for result in results])
    mean_moves = np.mean([result.moves for result in results])
    spread_part = None
    if per_server is not None:
        spread_part = spread / max(wide, 1.0)
    return SimulationSummary(
        average_jct_seconds=float(mean_jct),
        makespan_seconds=makespan,
        utilization=utilization(outcome),
        cost_usd=cost,
        slo_violations=violations,
        finish_time_fairness=float(mean_fairness),
        moves_per_job=float(mean_moves),
        jobs=len(done),
        groups=_groups(results),
        spread=spread_part,
    )


def utilization(outcome: SimulationOutcome) -> float:
    """Busy worker-seconds over available ones, from the first round to the last."""
    workers = outcome.scenario.cluster.workers.sum()
    span = outcome.end - outcome.round_start[0]
    there = workers * span
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
    fits = workload.scale[:, None] <= workers
    rates = np.where(fits, workload.rates, 0.0)
    rate = rates @ (workers / total)
    rho = np.full(len(rate), np.inf)

    # The number of active jobs, from each time before the end at which it changed.
    came = workload.arrival[workload.arrival < outcome.end]
    went = outcome.finish[outcome.finish < outcome.end]
    events = np.concatenate([came, went])
    order = np.argsort(events, kind="stable")
    changes = np.concatenate([np.ones(len(came)), -np.ones(len(went))])
    times = events[order]
    there = np.cumsum(changes[order])

    for scale in np.unique(workload.scale).tolist():
        shared = np.maximum(there, 1) * scale
        share = np.minimum(total / shared, 1.0)
        growth = np.diff(times) * share[:-1]
        received = np.concatenate([[0.0], np.cumsum(growth)])
        of_scale = (workload.scale == scale) & np.isfinite(outcome.finish)
        finished = np.flatnonzero(of_scale)
        arrival = workload.arrival[finished]
        begun = np.interp(arrival, times, received)
        needed = workload.steps[finished] / rate[finished]
        target = begun + needed
        inside = np.interp(target, received, times)
        beyond = np.maximum(target - received[-1], 0.0)
        after_last = beyond / share[-1]
        alone = inside + after_last - arrival
        rho[finished] = (outcome.finish[finished] - arrival) / alone

    return rho

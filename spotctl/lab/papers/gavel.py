"""Section 5.7 of the Gavel dissertation, in simulation: `spotctl lab gavel simulate` on the
published throughputs.

Jobs are drawn as the section says, a stream of them for each seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bidbrain.arrays import Ints
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterJobs, Entity, Pairs
from bidbrain.lab.gavel.engine import simulate
from bidbrain.lab.gavel.pricing_tables import SPEEDUPS
from bidbrain.lab.gavel.published import DROPS
from bidbrain.lab.gavel.results import SimulationSummary, summarize
from bidbrain.lab.gavel.workload import (
    ClusterSimulation,
    ClusterWorkload,
    Throughputs,
    generate,
    with_estimated_pairs,
)
from spotctl.lab.gavel.simulate import Options, dispatcher
from spotctl.lab.gavel.throughputs_file import read_throughputs, read_trace
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

TYPES = ("v100", "p100", "k80")
PRICES = np.array([0.74, 0.43, 0.135])
"""Dollars per hour in the paper's cost experiments."""

SIMULATION, PHYSICAL = (
    "gavel/simulation_throughputs.json.gz",
    "gavel/physical_cluster_throughputs.json.gz",
)
CONTINUOUS, STATIC = "gavel/max_min_fairness.csv", "gavel/minimize_makespan.csv"
HOUR, DAY = 3600.0, 86_400.0
STEADY = range(4000, 5000)
"""The jobs that the paper measures."""

BATCH, RENTED = 500, 500
PRIORITY, PRIOR = 5.0, 0.2
"""Weight of the jobs with priority, as in the published code, and their share of the jobs."""

PLAIN = Options(
    None, "", "", 0, "single", Path(), "", "", "", "", "", False, False, None, 360.0, 0.0, None
)
"""The options of `gavel simulate` if none is given."""


def command_options(
    policy: str, *, agnostic: bool = False, seed: int = 0, published: str = ""
) -> Options:
    """The command's options that choose how a cluster is run."""
    return replace(PLAIN, policy=policy, agnostic=agnostic, seed=seed, published=published)


def throughputs_of(path: Path) -> Throughputs:
    return read_throughputs(path).on(TYPES)


def on_cluster(
    workload: ClusterWorkload, workers: Sequence[float], measured: range | None = None
) -> ClusterSimulation:
    """The workload on these numbers of V100, P100 and K80."""
    cluster = Cluster(TYPES, np.array(workers, dtype=np.float64), PRICES)
    return ClusterSimulation(workload, cluster, measured or range(len(workload.names)))


def steady(
    throughputs: Throughputs, seconds: float, seed: int = 0, *, multiple: bool = False
) -> ClusterSimulation:
    """The paper's continuous stream on 36 workers of each type."""
    workload = generate(throughputs, seconds, 4 * STEADY.stop, seed, multiple=multiple)
    return on_cluster(workload, (36, 36, 36), STEADY)


def played(asked: ClusterSimulation, chosen: Options) -> SimulationSummary:
    """A simulation as the command plays it."""
    asked = replace(asked, drops=DROPS in chosen.switches())
    return summarize(simulate(asked, dispatcher(chosen, asked)))


def _by_load(
    seed: int,
    data: PaperData,
    *,
    policy: str,
    rates: Sequence[float],
    multiple: bool = False,
    published: str = "",
) -> FigureValues:
    """Completion times by jobs an hour with the policy that knows the types, and with the one that
    does not.
    """
    throughputs, values = throughputs_of(data.file(SIMULATION)), {}
    for rate in rates:
        asked = steady(throughputs, HOUR / rate, seed, multiple=multiple)
        aware, blind = (
            played(asked, command_options(policy, agnostic=not knows, published=published))
            for knows in (True, False)
        )
        values[f"aware @ {rate:g}"] = aware.average_jct_seconds / HOUR
        values[f"agnostic @ {rate:g}"] = blind.average_jct_seconds / HOUR
        last = f"at {rate:g} jobs an hour, agnostic over aware"
        values[f"completion time {last}"] = blind.average_jct_seconds / aware.average_jct_seconds
        values[f"finish-time fairness {last}"] = (
            blind.finish_time_fairness / aware.finish_time_fairness
        )

    return values


def _makespan(seed: int, data: PaperData, *, published: str = "") -> FigureValues:
    """500 jobs of one to eight workers, all at once."""
    throughputs = throughputs_of(data.file(SIMULATION))
    asked = on_cluster(generate(throughputs, 0, BATCH, seed, multiple=True), (36, 36, 36))
    shared = replace(asked, believed=throughputs)
    aware = played(asked, command_options("makespan", published=published)).makespan_seconds
    fifo = played(
        asked, command_options("fifo", agnostic=True, seed=seed, published=published)
    ).makespan_seconds
    together = played(shared, command_options("makespan")).makespan_seconds

    return {
        "FIFO over aware": fifo / aware,
        "random packing over aware": played(
            shared, command_options("random-packing")
        ).makespan_seconds
        / aware,
        "reduced by space sharing": 1 - together / aware,
    }


def _cost(seed: int, data: PaperData, *, printed: bool = False) -> FigureValues:
    """500 ResNet-50 and A3C jobs of 0.5 to 8 days with deadlines of 1.2, 2 and 10 times that, on
    rented machines.

    With `printed`, both are as fast on each type as Table 6.1 says.
    """
    throughputs = throughputs_of(data.file(SIMULATION))
    if printed:
        alone, k80 = throughputs.alone.copy(), TYPES.index("k80")
        for k, kind in enumerate(throughputs.kinds):
            for name, (speedup, _) in SPEEDUPS.get(kind.name.partition(" ")[0], {}).items():
                alone[k, TYPES.index(name)] = speedup * alone[k, k80]
        throughputs = replace(throughputs, alone=alone)

    asked = rented(throughputs, seed)
    fastest, cheapest, in_time = (
        played(asked, command_options(name))
        for name in ("max-throughput", "min-cost", "min-cost-slo")
    )
    usd = fastest.cost_usd or 0.0

    return {
        "most throughput over least cost": usd / (cheapest.cost_usd or 1.0),
        "deadlines missed at least cost": (cheapest.slo_violations or 0) / BATCH,
        "most throughput over least cost with deadlines": usd / (in_time.cost_usd or 1.0),
        "deadlines missed at least cost with deadlines": (in_time.slo_violations or 0) / BATCH,
    }


def rented(throughputs: Throughputs, seed: int) -> ClusterSimulation:
    """The paper's workload with deadlines, on more machines than it needs."""
    rng = np.random.default_rng(seed)
    models = [
        [
            k
            for k, kind in enumerate(throughputs.kinds)
            if kind.scale == 1 and kind.name.startswith(model)
        ]
        for model in ("ResNet-50", "A3C")
    ]

    kind = np.where(
        rng.random(BATCH) < 0.5, rng.choice(models[0], BATCH), rng.choice(models[1], BATCH)
    )
    days = rng.choice([0.5, 1, 2, 4, 8], BATCH)
    workload = ClusterWorkload(
        throughputs,
        tuple(str(m) for m in range(BATCH)),
        kind,
        np.floor(days * DAY * throughputs.alone[kind, throughputs.reference]),
        np.zeros(BATCH),
        np.ones(BATCH),
        rng.choice([1.2, 2.0, 10.0], BATCH),
    )

    return replace(on_cluster(workload, (RENTED,) * 3), allocation_seconds=0)


def _fifo(seed: int, data: PaperData, *, rates: Sequence[float]) -> FigureValues:
    """A queue that starts jobs on random types, against the paper's objective for FIFO, alone and
    in pairs.
    """
    throughputs, values = throughputs_of(data.file(SIMULATION)), dict[str, float]()
    for rate in rates:
        asked = steady(throughputs, HOUR / rate, seed)
        runs = {
            "agnostic": (asked, command_options("fifo", agnostic=True, seed=seed)),
            "aware": (asked, command_options("fifo-preemptive")),
            "space sharing": (
                replace(asked, believed=throughputs),
                command_options("fifo-preemptive"),
            ),
        }
        hours = {name: played(*run).average_jct_seconds / HOUR for name, run in runs.items()}
        values |= {f"{name} @ {rate:g}": each for name, each in hours.items()}
        values["completion time, agnostic over aware"] = hours["agnostic"] / hours["aware"]
        values["completion time, agnostic over space sharing"] = (
            hours["agnostic"] / hours["space sharing"]
        )

    return values


def _priorities(seed: int, data: PaperData, *, rate: float, published: str = "") -> FigureValues:
    """A fifth of the jobs has five times the weight of the others."""
    asked = steady(throughputs_of(data.file(SIMULATION)), HOUR / rate, seed)
    rng = np.random.default_rng([seed, 64])
    weight = np.where(rng.random(len(asked.workload.names)) < PRIOR, PRIORITY, 1.0)
    asked = replace(asked, workload=replace(asked.workload, weight=weight))
    aware, blind = (
        played(
            asked, command_options("max-min-fairness", agnostic=not knows, published=published)
        ).groups
        for knows in (True, False)
    )

    # Groups are in the order of their weights.
    low, high = (blind[at].average_jct_seconds / aware[at].average_jct_seconds for at in (0, 1))
    return {
        "completion time of jobs with priority, agnostic over aware": high,
        "completion time of the others, agnostic over aware": low,
    }


def _hierarchy(seed: int, data: PaperData) -> FigureValues:
    """The 18 jobs of three entities of weights 1 to 3 with which Figure 5.12 ends, on three workers
    of each type.
    """
    throughputs = throughputs_of(data.file(SIMULATION))
    kinds = np.random.default_rng(seed).choice(_single(throughputs), 18)
    asked = _owned(throughputs, kinds, np.repeat(range(3), 6), (1.0, 2.0, 3.0), workers=3.0)
    rates, usual = asked.jobs.throughputs, asked.jobs.throughputs.mean(axis=1)
    aware, fixed = (
        float(
            (
                (policy_named("hierarchical", agnostic=not knows)(asked).shares * rates).sum(axis=1)
                / usual
            ).sum()
        )
        for knows in (True, False)
    )

    return {"throughput lost by a fixed division among entities": 1 - fixed / aware}


def _single(throughputs: Throughputs) -> list[int]:
    return [k for k, kind in enumerate(throughputs.kinds) if kind.scale == 1]


def _owned(
    throughputs: Throughputs, kinds: Ints, owner: Ints, weights: Sequence[float], workers: float
) -> AllocationProblem:
    """Jobs of entities, with as many workers of each type."""
    count = len(kinds)
    jobs = ClusterJobs(
        ids=tuple(f"j{m}" for m in range(count)),
        throughputs=throughputs.alone[kinds],
        scale=np.ones(count, dtype=np.int64),
        weight=np.ones(count),
        steps=np.full(count, 1e9),
        elapsed_seconds=np.zeros(count),
        slo_seconds=np.full(count, np.inf),
        arrival=np.arange(count, dtype=np.float64),
        entity=tuple(f"e{of}" for of in owner),
    )

    entities = tuple(Entity(f"e{of}", weight) for of, weight in enumerate(weights))
    return AllocationProblem(Cluster(TYPES, np.full(3, workers), PRICES), jobs, entities=entities)


def _physical(seed: int, data: PaperData) -> FigureValues:
    """The published traces, on the physical cluster's throughputs."""
    throughputs = throughputs_of(data.file(PHYSICAL))
    continuous = on_cluster(read_trace(data.file(CONTINUOUS), throughputs, 0)[0], (8, 16, 24))
    static = on_cluster(read_trace(data.file(STATIC), throughputs, 0)[0], (8, 16, 24))
    aware, blind = (
        played(continuous, command_options("max-min-fairness", agnostic=not knows))
        for knows in (True, False)
    )
    packed = played(
        replace(static, believed=throughputs), command_options("random-packing", seed=seed)
    )

    return {
        "mean completion time, aware": aware.average_jct_seconds / HOUR,
        "mean completion time, agnostic": blind.average_jct_seconds / HOUR,
        "makespan, aware": played(static, command_options("makespan")).makespan_seconds / HOUR,
        "makespan, random packing": packed.makespan_seconds / HOUR,
    }


def _estimator(seed: int, data: PaperData, *, rate: float, measured: int) -> FigureValues:
    """Pairs that share workers by known throughputs, and by estimates from a few measured ones."""
    throughputs = throughputs_of(data.file(SIMULATION))
    asked = replace(steady(throughputs, HOUR / rate, seed), believed=throughputs)
    guessed = replace(asked, believed=with_estimated_pairs(throughputs, measured, seed))
    known, estimated = (
        played(each, command_options("max-min-fairness")).average_jct_seconds
        for each in (asked, guessed)
    )
    return {"completion time, estimated over known throughputs": estimated / known}


ROUND_MINUTES = (6, 12, 24, 48)
EARLY = range(500, 1000)
"""The jobs that are measured where each arrival and each end of a job is an allocation."""


def _rounds(seed: int, data: PaperData, *, rate: float) -> FigureValues:
    """Completion times by the length of a round, and with a division of each worker's time that is
    exact.
    """
    workload = generate(throughputs_of(data.file(SIMULATION)), HOUR / rate, 4 * EARLY.stop, seed)
    asked = on_cluster(workload, (36, 36, 36), EARLY)
    hours = {
        minutes: played(
            replace(asked, round_seconds=60.0 * minutes), command_options("max-min-fairness")
        )
        for minutes in ROUND_MINUTES
    }

    values = {
        f"rounds @ {minutes}": each.average_jct_seconds / HOUR for minutes, each in hours.items()
    }
    exact, shortest = _exactly_divided_seconds(asked), hours[ROUND_MINUTES[0]].average_jct_seconds
    return values | {
        "completion time with rounds of 6 minutes over an exact division": shortest / exact
    }


def _exactly_divided_seconds(asked: ClusterSimulation) -> float:
    """Mean completion time of the measured jobs if each always has exactly its share of the
    workers.
    """
    work, policy = asked.workload, policy_named("max-min-fairness")
    left, finish, count, now = work.steps.copy(), np.full(len(work.names), np.inf), 0, 0.0
    active = np.zeros(0, dtype=np.int64)
    while not np.isfinite(finish[asked.measured.start : asked.measured.stop]).all():
        if not active.size:
            now = max(now, work.arrival[count])
        came = int(np.searchsorted(work.arrival, now, side="right"))
        active, count = np.concatenate([active, np.arange(count, came)]), came
        jobs = ClusterJobs(
            ids=tuple(work.names[m] for m in active),
            throughputs=work.rates[active],
            scale=work.scale[active],
            weight=work.weight[active],
            steps=left[active],
            elapsed_seconds=now - work.arrival[active],
            slo_seconds=np.full(len(active), np.inf),
            arrival=work.arrival[active],
            entity=(None,) * len(active),
        )
        pace = (policy(AllocationProblem(asked.cluster, jobs)).shares * work.rates[active]).sum(
            axis=1
        )
        ends = left[active] / pace
        passed = min(ends.min(), work.arrival[count] - now)
        left[active] -= pace * passed
        now += passed
        done = active[ends <= passed]
        finish[done], active = now, active[ends > passed]

    among = slice(asked.measured.start, asked.measured.stop)
    return float((finish[among] - work.arrival[among]).mean())


def _scaling(seed: int, data: PaperData) -> FigureValues:
    """Processor seconds of one allocation to jobs of five entities, a quarter of a worker of each
    type for each job.
    """
    values = {}
    for name, count, paired in (
        ("hierarchical policy, 2,048 jobs", 2048, False),
        ("hierarchical policy with space sharing, 512 jobs", 512, True),
    ):
        throughputs = throughputs_of(data.file(SIMULATION))
        kinds = np.random.default_rng([seed, count]).choice(_single(throughputs), count)
        asked = _owned(
            throughputs, kinds, np.arange(count) % 5, (1.0, 2.0, 3.0, 1.0, 2.0), workers=count / 4
        )
        if paired:
            members = np.stack(np.triu_indices(count, 1), axis=1)
            asked = replace(
                asked,
                pairs=Pairs(
                    members, throughputs.together[kinds[members[:, 0]], kinds[members[:, 1]]]
                ),
            )
        started = time.process_time()
        policy_named("hierarchical")(asked)
        values[name] = time.process_time() - started

    return values


_LOAD = ("jobs an hour", "mean completion time, hours")
_PUBLISHED = "the choices of the published simulator (`--published all`)"


def _result(
    name: str,
    run: Callable[..., FigureValues],
    seconds: float,
    difference: str,
    *,
    published: bool = False,
) -> Experiment:
    """A result on the packaged throughputs; with `published`, its cause is how the published
    simulator chooses.
    """
    cause, switched = (_PUBLISHED, partial(run, published="all")) if published else ("", None)
    return Experiment(
        name,
        run,
        seconds,
        difference,
        needs=(SIMULATION,),
        cause=cause,
        switched=switched,
        axes=_LOAD,
    )


RESULTS = (
    _result(
        "gavel-las-single",
        partial(_by_load, policy="max-min-fairness", rates=(4.0, 5.6)),
        40.0,
        "The cluster is near the load that the agnostic policy cannot bear, where the ratio "
        "depends on the stream.",
    ),
    _result(
        "gavel-las-multiple",
        partial(_by_load, policy="max-min-fairness", rates=(2.0, 2.6), multiple=True),
        55.0,
        "Our agnostic policy knows by which type a job is measured, but not that types differ.",
    ),
    _result(
        "gavel-finish-time",
        partial(_by_load, policy="finish-time-fairness", rates=(2.0, 2.6), multiple=True),
        120.0,
        "Our agnostic policy takes a job to run at its mean speed on all types.",
    ),
    _result(
        "gavel-makespan",
        _makespan,
        20.0,
        "Our FIFO starts each job on a random type and never moves it.",
        published=True,
    ),
    _result(
        "gavel-fifo",
        partial(_fifo, rates=(4.0, 4.4, 4.8)),
        45.0,
        "The paper names no load. The agnostic queue can hardly bear the last load of the picture, "
        "and the paper's figures lie between that and the one before.",
    ),
    _result(
        "gavel-priorities",
        partial(_priorities, rate=5.6),
        20.0,
        "A priority is a weight of 5, as in the published code. The paper says neither its load "
        "nor its stream; ours is that of Figure 5.9b.",
    ),
    Experiment(
        "gavel-cost",
        _cost,
        4.0,
        "By the published throughputs ResNet-50 is cheapest on the P100, and by the paper's text "
        "on the V100.",
        needs=(SIMULATION,),
        cause="the speed-ups that Table 6.1 prints for both models",
        switched=partial(_cost, printed=True),
    ),
    Experiment(
        "gavel-rounds",
        partial(_rounds, rate=4.0),
        12.0,
        "An exact division allocates at each arrival and each end of a job, and no job waits for a "
        "round.",
        needs=(SIMULATION,),
        axes=("minutes of a round", _LOAD[1]),
    ),
    Experiment(
        "gavel-hierarchy",
        _hierarchy,
        0.5,
        "The paper does not name its jobs; ours are drawn, and over few seeds the mean may lie "
        "just outside of 10%. The figure is of all 18, with which Figure 5.12 ends.",
        20,
        needs=(SIMULATION,),
    ),
    Experiment(
        "gavel-physical",
        _physical,
        30.0,
        "The published traces, in simulation; the paper's column of its own simulation is what we "
        "compare with. Means"
        " are over all jobs of a trace; the paper's are of 25 jobs in its middle (N6031).",
        needs=(PHYSICAL, CONTINUOUS, STATIC),
    ),
    Experiment(
        "gavel-overhead",
        None,
        0.0,
        "The text bounds the times in which models save and load checkpoints at 5 seconds (N6299), "
        "less than the table's largest overhead takes of a round, and prints none.",
    ),
    _result(
        "gavel-estimator",
        partial(_estimator, rate=5.0, measured=6),
        60.0,
        "A scheduler that measures 6 of 75 pairs of a kind of job, and estimates the others.",
    ),
    Experiment(
        "gavel-scaling",
        _scaling,
        10.0,
        "Processor time on this computer, the only figure here that is not the same each time.",
        1,
        (SIMULATION,),
    ),
)

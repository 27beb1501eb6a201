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
    counts = np.array(workers, dtype=np.float64)
    cluster, every = Cluster(TYPES, counts, PRICES), range(len(workload.names))
    return ClusterSimulation(workload, cluster, measured or every)


def steady(
    throughputs: Throughputs, seconds: float, seed: int = 0, *, multiple: bool = False
) -> ClusterSimulation:
    """The paper's continuous stream on 36 workers of each type."""
    workload = generate(throughputs, seconds, 4 * STEADY.stop, seed, multiple=multiple)
    return on_cluster(workload, (36, 36, 36), STEADY)


def played(asked: ClusterSimulation, chosen: Options) -> SimulationSummary:
    """A simulation as the command plays it."""
    asked = replace(asked, drops=DROPS in chosen.switches())
    outcome = simulate(asked, dispatcher(chosen, asked))
    return summarize(outcome)


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
    throughputs, values = throughputs_of(data.file(SIMULATION)), dict[str, float]()
    for rate in rates:
        asked = steady(throughputs, HOUR / rate, seed, multiple=multiple)
        aware, blind = _aware_and_blind(asked, policy, published)
        values[f"aware @ {rate:g}"] = aware.average_jct_seconds / HOUR
        values[f"agnostic @ {rate:g}"] = blind.average_jct_seconds / HOUR
        last = f"at {rate:g} jobs an hour, agnostic over aware"
        time = blind.average_jct_seconds / aware.average_jct_seconds
        fairness = blind.finish_time_fairness / aware.finish_time_fairness
        values[f"completion time {last}"] = time
        values[f"finish-time fairness {last}"] = fairness

    return values


def _aware_and_blind(
    asked: ClusterSimulation, policy: str, published: str = ""
) -> tuple[SimulationSummary, SimulationSummary]:
    """The outcomes with the policy that knows the types of workers, and with the one that does
    not.
    """
    aware = command_options(policy, agnostic=False, published=published)
    blind = command_options(policy, agnostic=True, published=published)
    return played(asked, aware), played(asked, blind)


def _makespan(seed: int, data: PaperData, *, published: str = "") -> FigureValues:
    """500 jobs of one to eight workers, all at once."""
    throughputs = throughputs_of(data.file(SIMULATION))
    workload = generate(throughputs, 0, BATCH, seed, multiple=True)
    asked = on_cluster(workload, (36, 36, 36))
    shared = replace(asked, believed=throughputs)
    by_makespan = command_options("makespan", published=published)
    by_fifo = command_options("fifo", agnostic=True, seed=seed, published=published)
    aware = played(asked, by_makespan).makespan_seconds
    fifo = played(asked, by_fifo).makespan_seconds
    together = played(shared, command_options("makespan")).makespan_seconds
    packed = played(shared, command_options("random-packing")).makespan_seconds

    return {
        "FIFO over aware": fifo / aware,
        "random packing over aware": packed / aware,
        "reduced by space sharing": 1 - together / aware,
    }


def _cost(seed: int, data: PaperData, *, printed: bool = False) -> FigureValues:
    """500 ResNet-50 and A3C jobs of 0.5 to 8 days with deadlines of 1.2, 2 and 10 times that, on
    rented machines.

    With `printed`, both are as fast on each type as Table 6.1 says.
    """
    throughputs = throughputs_of(data.file(SIMULATION))
    if printed:
        # Each job as much faster on a type than on a K80 as Table 6.1 says.
        alone, k80 = throughputs.alone.copy(), TYPES.index("k80")
        for k, kind in enumerate(throughputs.kinds):
            model, _, _ = kind.name.partition(" ")
            for name, (speedup, _) in SPEEDUPS.get(model, {}).items():
                j = TYPES.index(name)
                alone[k, j] = speedup * alone[k, k80]
        throughputs = replace(throughputs, alone=alone)

    asked, names = rented(throughputs, seed), ("max-throughput", "min-cost", "min-cost-slo")
    fastest, cheapest, in_time = (played(asked, command_options(name)) for name in names)
    usd, least_usd = fastest.cost_usd or 0.0, cheapest.cost_usd or 1.0
    missed, missed_in_time = cheapest.slo_violations or 0, in_time.slo_violations or 0
    usd_in_time = in_time.cost_usd or 1.0

    return {
        "most throughput over least cost": usd / least_usd,
        "deadlines missed at least cost": missed / BATCH,
        "most throughput over least cost with deadlines": usd / usd_in_time,
        "deadlines missed at least cost with deadlines": missed_in_time / BATCH,
    }


def rented(throughputs: Throughputs, seed: int) -> ClusterSimulation:
    """The paper's workload with deadlines, on more machines than it needs."""
    rng = np.random.default_rng(seed)
    models = list[list[int]]()
    for model in ("ResNet-50", "A3C"):
        kinds_of = [kind.scale == 1 and kind.name.startswith(model) for kind in throughputs.kinds]
        models.append([k for k, is_of_model in enumerate(kinds_of) if is_of_model])

    resnet, a3c = models
    is_resnet = rng.random(BATCH) < 0.5
    of_resnet, of_a3c = rng.choice(resnet, BATCH), rng.choice(a3c, BATCH)
    kinds = np.where(is_resnet, of_resnet, of_a3c)
    days = rng.choice([0.5, 1, 2, 4, 8], BATCH)
    names = [str(m) for m in range(BATCH)]
    steps = days * DAY * throughputs.alone[kinds, throughputs.reference]
    workload = ClusterWorkload(
        throughputs,
        tuple(names),
        kinds,
        np.floor(steps),
        np.zeros(BATCH),
        np.ones(BATCH),
        rng.choice([1.2, 2.0, 10.0], BATCH),
    )

    asked = on_cluster(workload, (RENTED,) * 3)
    return replace(asked, allocation_seconds=0)


def _fifo(seed: int, data: PaperData, *, rates: Sequence[float]) -> FigureValues:
    """A queue that starts jobs on random types, against the paper's objective for FIFO, alone and
    in pairs.
    """
    throughputs, values = throughputs_of(data.file(SIMULATION)), dict[str, float]()
    agnostic = command_options("fifo", agnostic=True, seed=seed)
    preemptive = command_options("fifo-preemptive")
    for rate in rates:
        asked = steady(throughputs, HOUR / rate, seed)
        shared = replace(asked, believed=throughputs)
        runs = {
            "agnostic": (asked, agnostic),
            "aware": (asked, preemptive),
            "space sharing": (shared, preemptive),
        }
        hours = dict[str, float]()
        for name, run in runs.items():
            hours[name] = played(*run).average_jct_seconds / HOUR
            values[f"{name} @ {rate:g}"] = hours[name]

        blind, aware, sharing = hours["agnostic"], hours["aware"], hours["space sharing"]
        values["completion time, agnostic over aware"] = blind / aware
        values["completion time, agnostic over space sharing"] = blind / sharing

    return values


def _priorities(seed: int, data: PaperData, *, rate: float, published: str = "") -> FigureValues:
    """A fifth of the jobs has five times the weight of the others."""
    asked = steady(throughputs_of(data.file(SIMULATION)), HOUR / rate, seed)
    rng, jobs = np.random.default_rng([seed, 64]), len(asked.workload.names)
    has_priority = rng.random(jobs) < PRIOR
    weight = np.where(has_priority, PRIORITY, 1.0)
    asked = replace(asked, workload=replace(asked.workload, weight=weight))
    aware, blind = _aware_and_blind(asked, "max-min-fairness", published)

    # Groups are in the order of their weights.
    ratios = list[float]()
    for known, unknown in zip(aware.groups[:2], blind.groups[:2], strict=True):
        ratios.append(unknown.average_jct_seconds / known.average_jct_seconds)
    low, high = ratios
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
    owners, weights = np.repeat(range(3), 6), (1.0, 2.0, 3.0)
    asked = _owned(throughputs, kinds, owners, weights, workers=3.0)
    rates = asked.jobs.throughputs
    usual, totals = rates.mean(axis=1), list[float]()
    for agnostic in (False, True):
        policy = policy_named("hierarchical", agnostic=agnostic)
        speeds = (policy(asked).shares * rates).sum(axis=1)
        totals.append(float((speeds / usual).sum()))

    aware, fixed = totals
    return {"throughput lost by a fixed division among entities": 1 - fixed / aware}


def _single(throughputs: Throughputs) -> list[int]:
    return [k for k, kind in enumerate(throughputs.kinds) if kind.scale == 1]


def _owned(
    throughputs: Throughputs, kinds: Ints, owner: Ints, weights: Sequence[float], workers: float
) -> AllocationProblem:
    """Jobs of entities, with as many workers of each type."""
    count = len(kinds)
    ids, owners = [f"j{m}" for m in range(count)], [f"e{of}" for of in owner]
    never, once = np.full(count, np.inf), np.ones(count)
    jobs = ClusterJobs(
        ids=tuple(ids),
        throughputs=throughputs.alone[kinds],
        scale=np.ones(count, dtype=np.int64),
        weight=once,
        steps=np.full(count, 1e9),
        elapsed_seconds=np.zeros(count),
        slo_seconds=never,
        arrival=np.arange(count, dtype=np.float64),
        entity=tuple(owners),
    )

    entities = list[Entity]()
    for of, weight in enumerate(weights):
        entity = Entity(f"e{of}", weight)
        entities.append(entity)
    cluster = Cluster(TYPES, np.full(3, workers), PRICES)
    return AllocationProblem(cluster, jobs, entities=tuple(entities))


def _physical(seed: int, data: PaperData) -> FigureValues:
    """The published traces, on the physical cluster's throughputs."""
    throughputs, workers = throughputs_of(data.file(PHYSICAL)), (8, 16, 24)
    many, _ = read_trace(data.file(CONTINUOUS), throughputs, 0)
    few, _ = read_trace(data.file(STATIC), throughputs, 0)
    continuous, static = on_cluster(many, workers), on_cluster(few, workers)
    shared = replace(static, believed=throughputs)
    aware, blind = _aware_and_blind(continuous, "max-min-fairness")
    random_packing = command_options("random-packing", seed=seed)
    packed = played(shared, random_packing)
    shortest = played(static, command_options("makespan"))

    return {
        "mean completion time, aware": aware.average_jct_seconds / HOUR,
        "mean completion time, agnostic": blind.average_jct_seconds / HOUR,
        "makespan, aware": shortest.makespan_seconds / HOUR,
        "makespan, random packing": packed.makespan_seconds / HOUR,
    }


def _estimator(seed: int, data: PaperData, *, rate: float, measured: int) -> FigureValues:
    """Pairs that share workers by known throughputs, and by estimates from a few measured ones."""
    throughputs = throughputs_of(data.file(SIMULATION))
    plain = steady(throughputs, HOUR / rate, seed)
    estimates = with_estimated_pairs(throughputs, measured, seed)
    fair, seconds = command_options("max-min-fairness"), list[float]()
    for believed in (throughputs, estimates):
        summary = played(replace(plain, believed=believed), fair)
        seconds.append(summary.average_jct_seconds)

    known, estimated = seconds
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
    fair, values, seconds = command_options("max-min-fairness"), dict[str, float](), list[float]()
    for minutes in ROUND_MINUTES:
        in_rounds = replace(asked, round_seconds=60.0 * minutes)
        mean = played(in_rounds, fair).average_jct_seconds
        seconds.append(mean)
        values[f"rounds @ {minutes}"] = mean / HOUR

    # Mean completion time of the measured jobs if each always has exactly its share of the workers.
    work, policy = asked.workload, policy_named("max-min-fairness")
    left, finish = work.steps.copy(), np.full(len(work.names), np.inf)
    count, now, active = 0, 0.0, np.zeros(0, dtype=np.int64)
    among = slice(asked.measured.start, asked.measured.stop)
    while not np.isfinite(finish[among]).all():
        if not active.size:
            now = max(now, work.arrival[count])
        came = int(np.searchsorted(work.arrival, now, side="right"))
        new = np.arange(count, came)
        active, count = np.concatenate([active, new]), came
        arrived, rates = work.arrival[active], work.rates[active]
        jobs, remaining = len(active), left[active]
        names = [work.names[m] for m in active]
        problem = ClusterJobs(
            ids=tuple(names),
            throughputs=rates,
            scale=work.scale[active],
            weight=work.weight[active],
            steps=remaining,
            elapsed_seconds=now - arrived,
            slo_seconds=np.full(jobs, np.inf),
            arrival=arrived,
            entity=(None,) * jobs,
        )
        shares = policy(AllocationProblem(asked.cluster, problem)).shares
        pace = (shares * rates).sum(axis=1)
        ends, until_next = remaining / pace, work.arrival[count] - now
        passed = min(ends.min(), until_next)
        left[active] -= pace * passed
        now += passed
        done = active[ends <= passed]
        finish[done] = now
        active = active[ends > passed]

    took = finish[among] - work.arrival[among]
    exact, shortest = float(took.mean()), seconds[0]
    values["completion time with rounds of 6 minutes over an exact division"] = shortest / exact
    return values


def _scaling(seed: int, data: PaperData) -> FigureValues:
    """Processor seconds of one allocation to jobs of five entities, a quarter of a worker of each
    type for each job.
    """
    values, weights = dict[str, float](), (1.0, 2.0, 3.0, 1.0, 2.0)
    for name, count, paired in (
        ("hierarchical policy, 2,048 jobs", 2048, False),
        ("hierarchical policy with space sharing, 512 jobs", 512, True),
    ):
        throughputs = throughputs_of(data.file(SIMULATION))
        kinds = np.random.default_rng([seed, count]).choice(_single(throughputs), count)
        owners = np.arange(count) % len(weights)
        asked = _owned(throughputs, kinds, owners, weights, workers=count / 4)
        if paired:
            first, second = np.triu_indices(count, 1)
            members = np.stack([first, second], axis=1)
            together = throughputs.together[kinds[first], kinds[second]]
            asked = replace(asked, pairs=Pairs(members, together))
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
    cause, switched = "", None
    if published:
        cause, switched = _PUBLISHED, partial(run, published="all")
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

"""The cluster simulation of `spotctl lab gavel simulate`: from options to a simulation and its
dispatcher, and its results as a table, JSON, CSV and plots."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, replace
from math import isfinite
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.gavel import ENTITY_POLICIES
from bidbrain.gavel.estimator import BadFingerprint
from bidbrain.gavel.problem import Cluster, Entity
from bidbrain.lab.gavel.dispatch import (
    ByShares,
    Dispatcher,
    DispatchRules,
    InOrder,
    WithinBudget,
)
from bidbrain.lab.gavel.published import (
    DROPS,
    INTERVAL,
    LAST_TYPE,
    SWITCHES,
    WAIT,
    LastTypeQueue,
    policy_of,
    rules_of,
)
from bidbrain.lab.gavel.queued import Queued
from bidbrain.lab.gavel.results import JobGroup, SimulationSummary, job_results
from bidbrain.lab.gavel.rounds import SPREAD
from bidbrain.lab.gavel.workload import (
    ClusterSimulation,
    ClusterWorkload,
    JobKind,
    Throughputs,
    generate,
    with_estimated_pairs,
)
from bidbrain.queue.values import MEAN_COMPLETION
from pricing_data.units import usd_text
from spotctl.home.errors import BadRequest
from spotctl.lab.gavel.throughputs_file import read_throughputs, read_trace
from spotctl.lab.option_values import amounts
from spotctl.show.columns import WALL_SECONDS, Column, chosen, if_any, save_csv
from spotctl.show.plots import (
    BLUE,
    GOLD,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    output_folder,
    panels,
    save_plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from bidbrain.lab.gavel.engine import SimulationOutcome


# Random arrivals continue to this multiple of the last measured job, so that an overloaded cluster
# stays full.
_ARRIVALS = 4
# Random streams of deadlines, of a queue that ignores throughputs, and of owners.
_SLO_STREAM, _BLIND_STREAM, _OWNER_STREAM = 10, 11, 13
_MAX_JOBS, _MAX_SECONDS = 1_000_000, 1e9
_ON_BUDGET = "makespan-within-budget"


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options, as the user wrote them."""

    trace: Path | None
    arrivals: str
    jobs: str
    seed: int
    scale: str
    throughputs: Path
    cluster: str
    policy: str
    prices: str
    slo: str
    entities: str
    agnostic: bool
    space_sharing: bool
    measured_pairs: int | None
    round_seconds: float
    checkpoint_seconds: float
    budget: float | None
    published: str = ""

    def switches(self) -> frozenset[str]:
        """The choices of the published simulator that are on."""
        if self.published == "all":
            return SWITCHES
        named = frozenset(part.strip() for part in self.published.split(",")) - {""}
        unknown = sorted(named - SWITCHES)
        if unknown:
            known = ", ".join(sorted(SWITCHES))
            raise BadRequest(
                f"--published {self.published}: {unknown[0]!r} is not all, or one of {known}"
            )
        return named


def scenario(options: Options) -> tuple[ClusterSimulation, list[str]]:
    """The simulation, and remarks on jobs that were left out."""
    workers, per_server = _workers(options.cluster)
    types, counts = tuple(workers), np.array(list(workers.values()))
    cluster = Cluster(types, counts, _prices(options.prices, workers))
    _check_times(options, workers)

    measurements = read_throughputs(options.throughputs)
    throughputs = measurements.on(types, per_server)
    # The same jobs, wherever they are placed.
    workload, measured, remarks = _workload(options, measurements.on(types))
    workload = replace(workload, throughputs=throughputs)

    if options.slo:
        rng = np.random.default_rng([options.seed, _SLO_STREAM])
        factors = _factors("--slo", options.slo, "multiples of a job's duration", "1.2,2,10")
        of_jobs = rng.choice(factors, len(workload.names))
        workload = replace(workload, slo_factor=of_jobs)

    if options.entities:
        rng = np.random.default_rng([options.seed, _OWNER_STREAM])
        workload = workload.with_entities(_entities(options.entities), rng)

    if not 0 <= options.checkpoint_seconds < options.round_seconds:
        raise BadRequest(
            f"--checkpoint-seconds {options.checkpoint_seconds:g}: must be at least 0 and less "
            "than a round"
        )

    sizes = None
    if per_server:
        sizes = np.array([per_server.get(name, np.inf) for name in workers])
    simulation = ClusterSimulation(
        workload,
        cluster,
        measured,
        options.round_seconds,
        checkpoint_seconds=options.checkpoint_seconds,
        believed=_believed(options, throughputs),
        per_server=sizes,
        drops=DROPS in options.switches(),
    )

    return simulation, remarks


def _check_times(options: Options, workers: Mapping[str, float]) -> None:
    """Raises BadRequest unless there are whole workers, and the round and the budget are above 0."""
    counts = workers.values()
    if any(count % 1 for count in counts) or not sum(counts):
        raise BadRequest(
            f"--cluster {options.cluster}: numbers of workers must be whole, and not all 0"
        )
    if not (isfinite(options.round_seconds) and options.round_seconds > 0):
        raise BadRequest(f"--round {options.round_seconds:g}: must be above 0 seconds")
    budget = options.budget
    if budget is not None and not (isfinite(budget) and budget > 0):
        raise BadRequest(f"--budget {budget:g}: must be above 0 dollars")


def _workers(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Reads `v100=8/4,k80=4`: workers by type, and those of a server where jobs may be spread
    (infinite if unknown).
    """
    parts = [part.partition("/") for part in text.split(",")]
    listed = ",".join(workers for workers, _, _ in parts)
    named = amounts("--cluster", listed, "v100=8,p100=16,k80=24")
    per_server = dict[str, float]()

    for name, (workers, slash, size) in zip(named, parts, strict=True):
        if not slash:
            continue
        if not size.isdecimal() or not int(size):
            raise BadRequest(
                f"--cluster {text}: {workers}/{size}: write v100=8/4 for eight workers, four on "
                "each server"
            )
        per_server[name] = float(size)

    for name in list(named):
        base = name.removesuffix(SPREAD)
        if base == name or base not in named:
            continue
        count, whole = named.pop(name), named[base]
        per_server.pop(name, None)
        if count != whole:
            raise BadRequest(
                f"--cluster {text}: {name}={count:g} and {base}={whole:g} are the same workers: "
                f"give both the same number, or write {base}={whole:g}/N for servers of N workers"
            )
        per_server.setdefault(base, np.inf)

    return named, per_server


def _believed(options: Options, throughputs: Throughputs) -> Throughputs | None:
    """The throughputs of pairs that share workers, as far as the scheduler knows them; None if no
    jobs share any.
    """
    if options.measured_pairs is None:
        return throughputs if options.space_sharing else None
    if not options.space_sharing:
        raise BadRequest(
            f"--measured-pairs {options.measured_pairs}: needs --space-sharing, the only mode that "
            "uses pairs of jobs"
        )

    try:
        return with_estimated_pairs(throughputs, options.measured_pairs, options.seed)
    except BadFingerprint as error:
        raise BadRequest(f"--measured-pairs: {error}") from error


def dispatcher(options: Options, simulation: ClusterSimulation) -> Dispatcher:
    """The dispatcher that realizes the chosen policy."""
    kind, _, queued = options.policy.rpartition(":")
    switches = options.switches()
    if options.budget is not None and queued != _ON_BUDGET:
        raise BadRequest(f"--budget {options.budget:g}: only --policy {_ON_BUDGET} has a budget")

    if switches and options.space_sharing:
        raise BadRequest(
            f"--published {options.published}: is for jobs alone on their workers; leave out "
            "--space-sharing"
        )
    if options.policy in {"fifo", "fifo-perf"}:
        return _queue(options, simulation, switches)

    if kind == "queue" or queued == MEAN_COMPLETION:
        if options.agnostic or options.space_sharing or switches:
            option = (
                "--agnostic"
                if options.agnostic
                else "--space-sharing"
                if options.space_sharing
                else "--published"
            )
            raise BadRequest(
                f"{option}: queues never do that; leave it out, or use another --policy than "
                f"{options.policy}"
            )
        return Queued(simulation, queued, options.budget)

    name = "fifo" if options.policy == "fifo-preemptive" else options.policy
    policy = policy_of(name, switches, simulation.workload.throughputs, agnostic=options.agnostic)
    # Rented machines are available at once, so an allocation is due as soon as a job arrives.
    rented = simulation if INTERVAL in switches else replace(simulation, allocation_seconds=0.0)
    if name == _ON_BUDGET:
        if options.budget is None:
            raise BadRequest(
                f"--budget: is missing: --policy {_ON_BUDGET} needs a budget in dollars"
            )
        return WithinBudget(rented, policy, options.budget)
    if name in {"min-cost", "min-cost-slo"}:
        # They leave workers idle on purpose; who plans for deadlines plans again every ten rounds.
        rules = DispatchRules(beyond_shares=False, periodic=name == "min-cost-slo")
        return ByShares(rented, policy, rules_of(rules, switches))

    return ByShares(simulation, policy, rules_of(DispatchRules(blind=options.agnostic), switches))


def _queue(options: Options, simulation: ClusterSimulation, switches: Set[str]) -> Dispatcher:
    """Jobs in the order of their arrival, which stay where they are or move to faster types."""
    if options.space_sharing:
        raise BadRequest(
            f"--space-sharing: --policy {options.policy} cannot share workers; use --policy "
            "fifo-preemptive"
        )

    moves, wait = options.policy == "fifo-perf", WAIT in switches
    if moves and options.agnostic:
        raise BadRequest("--agnostic: --policy fifo-perf chooses by throughput; use --policy fifo")
    if options.agnostic and LAST_TYPE in switches:
        rules = rules_of(DispatchRules(), switches)
        # Jobs without a worker of their own wait, and debts never count.
        queue = LastTypeQueue(Random(options.seed))  # noqa: S311 - the published draws, no secret
        return ByShares(simulation, queue, replace(rules, beyond_shares=False, debt_rounds=np.inf))

    blind = np.random.default_rng([options.seed, _BLIND_STREAM]) if options.agnostic else None
    return InOrder(simulation, blind, moves=moves, newcomers_wait=wait)


def _workload(
    options: Options, throughputs: Throughputs
) -> tuple[ClusterWorkload, range, list[str]]:
    if (options.trace is None) == (not options.arrivals):
        raise BadRequest(
            "no workload: give either --trace FILE.csv, or --arrivals poisson:900 with --jobs "
            "4000:5000"
        )
    if options.scale not in ("single", "multiple"):
        raise BadRequest(f"--scale {options.scale}: must be single or multiple")

    if options.trace is not None:
        workload, unknown = read_trace(options.trace, throughputs, options.seed)
        measured = range(len(workload.names))
        if options.jobs:
            measured = _window(options.jobs)
        return workload, measured, _left_out(unknown)
    if not options.jobs:
        raise BadRequest(
            "--arrivals: also needs --jobs, the range of measured jobs (--jobs 4000:5000)"
        )

    measured = _window(options.jobs)
    process, _, mean = options.arrivals.partition(":")
    try:
        seconds = float(mean)
    except ValueError:
        seconds = float("nan")

    if process != "poisson" or not 0 <= seconds <= _MAX_SECONDS:
        raise BadRequest(
            f"--arrivals {options.arrivals}: write poisson:900 for 900 seconds between two "
            "arrivals, 0 for all at once"
        )

    count, multiple = measured.stop, options.scale == "multiple"
    if seconds:
        count *= _ARRIVALS
    workload = generate(throughputs, seconds, count, options.seed, multiple=multiple)
    return workload, measured, []


def _left_out(unknown: Mapping[JobKind, int]) -> list[str]:
    """The remark about jobs whose kind has no throughput, if there are any."""
    if not unknown:
        return []
    kind, most = max(unknown.items(), key=itemgetter(1))
    total, others = sum(unknown.values()), len(unknown) - 1
    example = f"{most:,} of {kind.name!r} on {kind.scale} workers"
    if others:
        example += f" and {others} more kinds"
    return [f"left out: {total:,} jobs whose throughput was not measured ({example})"]


def _window(text: str) -> range:
    """Reads `4000:5000`, or `500` for the first 500 jobs."""
    first, colon, last = text.partition(":")
    try:
        begin, end = (int(first), int(last)) if colon else (0, int(first))
    except ValueError:
        begin = end = 0

    window = range(begin, end)
    if not window or window.start < 0 or window.stop > _MAX_JOBS:
        raise BadRequest(
            f"--jobs {text}: is not a range of at most {_MAX_JOBS:,} jobs (write 4000:5000; 5000 "
            "is not included)"
        )
    return window


def _prices(
    text: str, workers: Mapping[str, float]
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    if not text:
        return None

    prices = amounts("--prices", text, "v100=0.74,p100=0.43,k80=0.135")
    missing = [name for name in workers if name not in prices]
    if missing:
        raise BadRequest(
            f"--prices {text}: has no price for {missing[0]!r}, which is in the cluster"
        )

    return np.array([prices[name] for name in workers])


def _factors(option: str, text: str, what: str, example: str) -> list[float]:
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError:
        factors = []
    usable = [factor for factor in factors if isfinite(factor) and factor > 0]
    if not factors or len(usable) < len(factors):
        raise BadRequest(f"{option} {text}: is not a list of {what} (write {example})")
    return factors


def _entities(text: str) -> list[Entity]:
    """Reads `research=2:fairness,product=1:fifo`."""
    entities: dict[str, Entity] = {}
    for part in text.split(","):
        name, _, rest = part.strip().partition("=")
        weight, _, policy = rest.partition(":")
        try:
            entity = Entity(name, float(weight), policy or "fairness")
        except ValueError:
            entity = Entity(name, 0.0)
        valid = name and name not in entities and isfinite(entity.weight) and entity.weight > 0
        if not valid or entity.policy not in ENTITY_POLICIES:
            raise BadRequest(
                f"--entities {text}: {part.strip()!r} is not NAME=WEIGHT:POLICY with fairness or "
                "fifo (write research=2:fairness,product=1:fifo, each name once)"
            )
        entities[name] = entity

    return list(entities.values())


_HOUR = 3600.0
_COLORS = (BLUE, GREEN, ORANGE, PURPLE, INK, GOLD)
# More points are not visible and only make the files larger.
_STEPS = 600
_BINS = 8


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s ({seconds / 3600:,.1f} h)"


SUMMARY: tuple[Column[SimulationSummary], ...] = (
    Column(
        "average_jct_seconds",
        "mean time from a job's arrival to its end",
        heading="average completion time",
        show=_hours,
    ),
    Column(
        "makespan_seconds",
        "time from the first arrival of a measured job to the last end of one",
        heading="makespan",
        show=_hours,
    ),
    Column(
        "utilization",
        "share of the cluster's time in use",
        heading="utilization of the cluster",
        show="{:.1%}",
    ),
    Column(
        "cost_usd",
        "cost; null without prices",
        heading="cost",
        show=usd_text,
    ),
    Column(
        "slo_violations",
        "number of deadlines missed; null without deadlines",
        heading="deadlines missed",
        show="{:,}",
    ),
    Column("jobs", "number of jobs measured", heading="jobs measured", show="{:,}"),
)
_SPREAD: Column[SimulationSummary] = Column(
    "spread",
    "with servers: share of the worker time of jobs on several workers that was spread over "
    "servers",
    heading="spread over servers, of the time of jobs on several workers",
    show="{:.1%}",
    optional=True,
)
SIMULATION: tuple[Column[Any], ...] = (
    *SUMMARY,
    Column(
        "groups",
        "jobs by entity, or by priority",
        form=if_any,
        each=JobGroup,
        optional=True,
    ),
    _SPREAD,
    WALL_SECONDS,
)
_ONLY_SHOWN: tuple[Column[SimulationSummary], ...] = (
    Column("finish_time_fairness", heading="finish-time fairness, mean", show="{:.2f}"),
    Column(
        "moves_per_job",
        value="moves_per_job",
        heading="moves per job",
        show="{:.1f}",
    ),
)


def table(summary: SimulationSummary) -> Table:
    """One row per figure."""
    from rich.table import Table

    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(no_wrap=True)
    rows.add_column(justify="right", no_wrap=True)
    order = (
        "jobs average_jct_seconds makespan_seconds utilization finish_time_fairness moves_per_job "
        "cost_usd"
    )
    spread = "" if summary.spread is None else "spread"
    for column in chosen((*SUMMARY, *_ONLY_SHOWN, _SPREAD), f"{order} slo_violations {spread}"):
        rows.add_row(column.heading, column.text(summary))

    for group in summary.groups:
        rows.add_row(
            f"completion time, {group.jobs:,} jobs of {group.name}",
            _hours(group.average_jct_seconds),
        )

    return rows


def write(folder: Path, outcome: SimulationOutcome) -> None:
    """Writes `jobs.csv` with a row per measured job, and `jct_cdf.png`, `jct_by_load.png` and
    `allocation.png`.

    Cells without a value are empty; the seconds on each worker type have columns of their own.
    """
    rows = []
    for result in job_results(outcome):
        row = asdict(result)
        seconds = {f"{kind}_seconds": seconds for kind, seconds in row.pop("held_seconds").items()}
        rows.append({**row, **seconds})

    measured = np.array(outcome.scenario.measured)
    jct = (outcome.finish - outcome.scenario.workload.arrival)[measured] / _HOUR
    with output_folder(folder):
        save_csv(folder / "jobs.csv", rows)

        # The share of jobs completed within a number of hours.
        figure, (axes,) = panels(7, 4)
        shares = np.arange(1, len(jct) + 1) / len(jct)
        axes.step(np.sort(jct), shares, where="post", color=_COLORS[0])
        axes.set_xscale("log")
        axes.set_xlabel("completion time, hours")
        axes.set_ylabel("share of jobs")
        axes.set_ylim(0, 1.02)
        save_plot(figure, folder / "jct_cdf.png")

        # By the jobs in the cluster at arrival; the line is the mean of similar jobs.
        arrival = outcome.scenario.workload.arrival
        came, finished = arrival[measured], np.sort(outcome.finish)
        arrived = np.searchsorted(arrival, came, side="right")
        left = np.searchsorted(finished, came, side="right")
        present = arrived - left
        figure, (axes,) = panels(7, 4)
        axes.scatter(present, jct, s=8, alpha=0.4, color=_COLORS[0])

        across, mean_times = list[float](), list[float]()
        by_load = np.argsort(present, kind="stable")
        for group in np.array_split(by_load, _BINS):
            if group.size:
                across.append(float(present[group].mean()))
                mean_times.append(float(jct[group].mean()))
        axes.plot(across, mean_times, color=_COLORS[2], marker="o")

        axes.set_yscale("log")
        axes.set_xlabel("jobs in the cluster at arrival")
        axes.set_ylabel("completion time, hours")
        save_plot(figure, folder / "jct_by_load.png")

        save_plot(_draw_allocation(outcome), folder / "allocation.png")


def _draw_allocation(outcome: SimulationOutcome) -> Figure:
    """The busy share of each type's workers over time, above the number of jobs in the cluster."""
    steps = min(_STEPS, len(outcome.round_start))
    edges = np.linspace(outcome.round_start[0], outcome.end, steps + 1)
    hours, seconds = edges / _HOUR, np.diff(edges)
    nothing = np.zeros(outcome.busy_worker_seconds.shape[1])
    worked = np.cumsum(outcome.busy_worker_seconds, axis=0)
    done = np.vstack([nothing, worked])

    at = np.append(outcome.round_start[:1], outcome.round_end)
    figure, (busy, jobs) = panels(9, 5, 2, sharex=True, height_ratios=(2, 1))
    cluster = outcome.scenario.cluster
    for j, color in zip(range(len(cluster.types)), _COLORS, strict=False):
        workers = cluster.workers[j]
        if workers:
            busy_seconds = np.diff(np.interp(edges, at, done[:, j]))
            share = busy_seconds / seconds / workers
            busy.stairs(share, hours, label=f"{workers:g} {cluster.types[j]}", color=color)

    busy.set_ylabel("share of workers busy")
    busy.set_ylim(0, 1.05)
    columns = len(cluster.types)
    busy.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=columns)
    arrival, finished = outcome.scenario.workload.arrival, np.sort(outcome.finish)
    arrived = np.searchsorted(arrival, edges, side="right")
    left = np.searchsorted(finished, edges, side="right")
    present = arrived - left
    jobs.stairs(present[:-1], hours, color=_COLORS[4])
    jobs.set_ylabel("jobs in the cluster")
    jobs.set_xlabel("hours")

    return figure

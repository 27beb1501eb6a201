"""The cost policies on the published workload: `python -m bench.gavel_cost THROUGHPUTS.json.gz [SEED...]`.

500 jobs, ResNet-50 and A3C, that take 0.5 to 8 days on a V100 and have deadlines of 1.2, 2 or 10 times that (section
5.7.3 of the dissertation, "Cost"). The paper prints neither the cluster nor the arrivals. Its violations are those of
jobs that never wait, so the first setting has workers for all; in the second, jobs arrive hourly and share few workers.
Its ResNet-50 is cheapest on V100s, while the published measurements make P100s cheapest: each setting is therefore also
run with the ratios of Table 6.1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import Cluster
from bidbrain.lab.gavel.pricing.analysis import SPEEDUPS
from bidbrain.lab.gavel.simulator.dispatch import ByShares, Dispatcher, DispatchRules
from bidbrain.lab.gavel.simulator.engine import simulate
from bidbrain.lab.gavel.simulator.results import SimulationSummary, job_results, summarize
from bidbrain.lab.gavel.workload import ClusterSimulation, ClusterWorkload, JobKind, Throughputs
from spotctl.lab.gavel.throughputs_file import read_throughputs

TYPES = ("v100", "p100", "k80")
USD_PER_HOUR = (0.74, 0.43, 0.135)
JOBS, DAYS, SLO_FACTORS = 500, (0.5, 1.0, 2.0, 4.0, 8.0), (1.2, 2.0, 10.0)
HEAD = f"{'policy':16}{'cost, $':>9}{'reduction':>11}{'paper':>7}{'violations':>12}{'paper':>7}{'A3C':>7}{'wall, s':>9}"
PAPER = {"max-throughput": (1.0, None), "min-cost": (1.4, 35), "min-cost-slo": (1.2, 0)}


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """Workers of each type, and the mean seconds between two arrivals (0: all at once)."""

    name: str
    workers: int
    gap_seconds: float


CLUSTERS = (
    ClusterSetting("workers for all, at once", JOBS, 0.0),
    ClusterSetting("40 of each type, one an hour", 40, 3600.0),
)


def main(path: Path, seeds: Sequence[int]) -> None:
    """Prints a table for each setting and source of throughputs."""
    measured = read_throughputs(path).on(TYPES)
    for source, throughputs in (("measured throughputs", measured), ("throughputs as in Table 6.1", table_6_1())):
        for setting in CLUSTERS:
            print(f"\n{source}; {setting.name}; seeds {', '.join(map(str, seeds))}")
            print(HEAD)
            show([scenario(throughputs, setting, seed) for seed in seeds])


def show(scenarios: Sequence[ClusterSimulation]) -> None:
    """A row for each policy: means over seeds; violations in percent of all jobs, and of A3C among them."""
    base = 0.0
    for name, (reduction, violations) in PAPER.items():
        started = time.perf_counter()
        outcomes = [outcome(asked, name) for asked in scenarios]
        seconds = time.perf_counter() - started
        cost = float(np.mean([summary.cost_usd for summary, _ in outcomes]))
        base = base or cost
        missed = 100 * float(np.mean([summary.slo_violations for summary, _ in outcomes])) / JOBS
        games = 100 * float(np.mean([late for _, late in outcomes])) / JOBS
        printed = "-" if violations is None else f"{violations}%"
        print(
            f"{name:16}{cost:9,.0f}{base / cost:10.2f}x{reduction:6.1f}x{missed:11.1f}%{printed:>7}{games:6.1f}%"
            f"{seconds / len(outcomes):9.1f}"
        )


def outcome(asked: ClusterSimulation, policy: str) -> tuple[SimulationSummary, int]:
    """The simulation's summary, and the number of late A3C jobs."""
    simulated = simulate(asked, WAYS[policy](asked))
    late = sum(job.slo_met is False and job.kind == "A3C" for job in job_results(simulated))
    return summarize(simulated), late


def scenario(throughputs: Throughputs, setting: ClusterSetting, seed: int) -> ClusterSimulation:
    """The workload: half of the jobs A3C, half ResNet-50 of any measured batch size."""
    rng = np.random.default_rng(seed)
    single = [i for i, kind in enumerate(throughputs.kinds) if kind.scale == 1]
    games = [i for i in single if throughputs.kinds[i].name == "A3C"]
    vision = [i for i in single if throughputs.kinds[i].name.startswith("ResNet-50")]
    kind = np.where(rng.random(JOBS) < 0.5, rng.choice(games, JOBS), rng.choice(vision, JOBS))
    steps = np.floor(throughputs.alone[kind, 0] * rng.choice(DAYS, JOBS) * 86_400)
    slo = rng.choice(SLO_FACTORS, JOBS)
    arrival = np.cumsum(rng.exponential(1.0, JOBS)) * setting.gap_seconds
    names = tuple(str(number) for number in range(JOBS))
    workload = ClusterWorkload(throughputs, names, kind, steps, arrival - arrival[0], np.ones(JOBS), slo)
    cluster = Cluster(TYPES, np.full(len(TYPES), float(setting.workers)), np.array(USD_PER_HOUR))
    return ClusterSimulation(workload, cluster, range(JOBS))


def table_6_1() -> Throughputs:
    """The two models with the speeds of Table 6.1, in steps per K80-second."""
    kinds = ("ResNet-50", "A3C")
    alone = np.array([[SPEEDUPS[name]["v100"][0], SPEEDUPS[name]["p100"][0], 1.0] for name in kinds])
    return Throughputs(TYPES, tuple(JobKind(name, 1) for name in kinds), alone, np.zeros((2, 2, len(TYPES), 2)))


def _conserving(asked: ClusterSimulation) -> Dispatcher:
    return ByShares(asked, policy_named("max-throughput"))


def _rented(asked: ClusterSimulation, policy: str, *, periodic: bool) -> Dispatcher:
    """As `spotctl lab gavel simulate`: reallocates at once, and leaves workers idle that a policy does not use."""
    prompt = replace(asked, allocation_seconds=0.0)
    return ByShares(prompt, policy_named(policy), DispatchRules(beyond_shares=False, periodic=periodic))


WAYS: dict[str, Callable[[ClusterSimulation], Dispatcher]] = {
    "max-throughput": _conserving,
    "min-cost": partial(_rented, policy="min-cost", periodic=False),
    "min-cost-slo": partial(_rented, policy="min-cost-slo", periodic=True),
}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m bench.gavel_cost THROUGHPUTS.json.gz [SEED...]")
    main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]] or [0])

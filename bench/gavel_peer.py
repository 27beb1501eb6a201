"""Published mode next to the published simulator itself, on streams of kinds that its stored
results do not have.

`python -m bench.gavel_peer CHECKOUT [KIND...]`: CHECKOUT has the published code
(github.com/stanford-futuredata/gavel), which needs cvxpy and ecos and runs unchanged. Eight seeds a
kind: `multi` (1 to 8 workers, a busy cluster), `light` (mostly idle), `batch` (1 to 8 workers, all
at once), `priorities` (few workers of one type, weights of 1 and 5), and `bursts` (several jobs
come at the same moment).
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from bench.gavel_simulator import PUBLISHED_POLICIES
from bench.harness import Row, table
from bidbrain.gavel.problem import Cluster
from bidbrain.lab.gavel.engine import simulate
from bidbrain.lab.gavel.results import summarize
from bidbrain.lab.gavel.workload import ClusterSimulation, ClusterWorkload, generate
from spotctl.lab.gavel.simulate import dispatcher
from spotctl.lab.gavel.throughputs_file import read_throughputs
from spotctl.lab.papers.gavel import PRICES, TYPES, command_options

SEEDS = range(8)
# Neither is used by a simulation.
_NOT_NEEDED = ("psutil", "matrix_completion", "runtime", "runtime.rpc")
_BURST_SECONDS = 20_000.0


class StreamKind(NamedTuple):
    """How jobs come, and the cluster that they run on."""

    seconds: float
    jobs: int
    multiple: bool
    workers: tuple[int, ...]
    weights: tuple[float, ...] = (1.0,)
    bursts: bool = False


KINDS = {
    "multi": StreamKind(1500, 80, True, (10, 10, 10)),
    "light": StreamKind(9000, 50, False, (2, 2, 2)),
    "batch": StreamKind(0, 60, True, (8, 12, 16)),
    "priorities": StreamKind(900, 90, False, (16, 4, 8), (1.0, 1.0, 1.0, 1.0, 5.0)),
    "bursts": StreamKind(3000, 70, True, (8, 16, 8), (1.0, 2.0, 4.0), bursts=True),
}


class Peer:
    """The published simulator, run unchanged."""

    def __init__(self, checkout: Path, throughputs: Path) -> None:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        for name in _NOT_NEEDED:
            sys.modules[name] = ModuleType(name)
        sys.modules["runtime.rpc"].__dict__.update(scheduler_server=None, scheduler_client=None)
        sys.path.insert(0, str(checkout / "scheduler"))
        modules: list[Any] = [import_module(name) for name in ("scheduler", "utils", "job")]
        self._scheduler, self._utils, self._job = modules
        self._throughputs = throughputs

    def figures(
        self, stream: ClusterWorkload, policy: str, workers: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """Mean completion time, makespan and cost."""
        jobs = [
            self._job.Job(None, kind.name, "", "", "-n", int(steps), None, kind.scale, weight)
            for kind, steps, weight in zip(
                (stream.throughputs.kinds[k] for k in stream.kind),
                stream.steps,
                stream.weight,
                strict=True,
            )
        ]
        usd, arrival = dict(zip(TYPES, PRICES.tolist(), strict=True)), stream.arrival.tolist()
        with contextlib.redirect_stdout(io.StringIO()):
            peer = self._scheduler.Scheduler(
                self._utils.get_policy(policy, solver="ECOS", seed=0),
                throughputs_file=str(self._throughputs),
                simulate=True,
                seed=0,
                time_per_iteration=360,
            )
            if "cost" in policy:
                vars(self._utils)["get_latest_price_for_worker_type"] = lambda kind, *_: usd[kind]
                vars(peer).update(
                    _per_worker_type_prices=dict(usd), _per_instance_type_spot_prices={}
                )
                vars(peer).update(_available_clouds=set())
            peer.simulate(
                dict(zip(TYPES, workers, strict=True)),
                arrival,
                jobs,
                num_gpus_per_server=dict.fromkeys(TYPES, 1),
            )
            mean = float(peer.get_average_jct())
        busy = peer._cumulative_worker_time_so_far.items()
        kinds = peer._worker_id_to_worker_type_mapping
        cost = sum(seconds / 3600 * usd[kinds[worker]] for worker, seconds in busy)
        return np.array([mean, peer._current_timestamp - arrival[0], cost])


def compared(peer: Peer, table_file: Path, name: str) -> list[Row]:
    """By policy: our mean over the published mean of the seeds, and the seed that is farthest."""
    kind, rows = KINDS[name], []
    throughputs = read_throughputs(table_file).on(TYPES)
    cluster = Cluster(TYPES, np.array(kind.workers, dtype=np.float64), PRICES)
    for policy, (ours, agnostic) in PUBLISHED_POLICIES.items():
        if policy == "allox" and kind.multiple:
            continue
        figures = []
        for seed in SEEDS:
            stream = generate(
                throughputs, kind.seconds, kind.jobs, 1000 + seed, multiple=kind.multiple
            )
            weight = np.random.default_rng(seed).choice(kind.weights, kind.jobs)
            arrival = (
                np.floor(stream.arrival / _BURST_SECONDS) * _BURST_SECONDS
                if kind.bursts
                else stream.arrival
            )
            stream = replace(stream, weight=weight, arrival=arrival, steps=np.floor(stream.steps))
            asked = ClusterSimulation(stream, cluster, range(kind.jobs), drops=True)
            options = command_options(ours, agnostic=agnostic, published="all")
            summary = summarize(simulate(asked, dispatcher(options, asked)))
            mine = (summary.average_jct_seconds, summary.makespan_seconds, summary.cost_usd or 0.0)
            figures.append((np.array(mine), peer.figures(stream, policy, kind.workers)))
        mean = (
            np.mean([mine for mine, _ in figures], axis=0)
            / np.mean([theirs for _, theirs in figures], axis=0)
            - 1
        )
        worst = max(float(np.abs(mine / theirs - 1).max()) for mine, theirs in figures)
        jct, makespan, cost = mean.tolist()
        means = f"JCT {jct:+.1%}, makespan {makespan:+.1%}, cost {cost:+.1%}"
        rows.append(Row(f"{name}, {policy}", means, "within 5%", f"farthest seed {worst:.1%}"))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(words: list[str]) -> None:
    """Prints a table for each kind of stream."""
    if not words or (unknown := [word for word in words[1:] if word not in KINDS]):
        sys.exit(
            f"python -m bench.gavel_peer CHECKOUT [KIND...]: unknown "
            f"{unknown if words else 'CHECKOUT'}"
        )
    checkout = Path(words[0]).resolve()
    table_file = checkout / "scheduler" / "simulation_throughputs.json"
    peer = Peer(checkout, table_file)
    for name in words[1:] or KINDS:
        print(
            table(
                f"Published mode: {name}", f"{len(SEEDS)} seeds.", compared(peer, table_file, name)
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])

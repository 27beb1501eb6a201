"""Simulated workloads: throughputs per kind of job, jobs that arrive over time, and the cluster
that they run on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.gavel.estimator import BadFingerprint, pairs_of_new
from bidbrain.gavel.problem import Cluster, Entity, Placement
from bidbrain.lab.gavel.rounds import SPREAD

_MAX_ROUNDS = 10_000_000


# Number of workers per job: 70% one, 25% two to four, 5% eight (section 5.7.1). The published
# generator splits the middle between two and four as two to three.
SCALES = np.array([1, 2, 4, 8])
SCALE_ODDS = np.array([0.7, 0.1, 0.15, 0.05])
# A job takes 10^x minutes alone on the reference type, with x uniform in the first range or, less
# often, in the second.
SHORT, LONG, SHORT_ODDS = (1.5, 3.0), (3.0, 4.0), 0.8


class BadWorkload(BidBrainError):
    """Jobs that cannot be simulated."""


class JobKind(NamedTuple):
    """Jobs with identical throughputs: the model they train, and the number of workers."""

    name: str
    scale: int


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second of each kind on each type: alone (kind, type), and of two sharing workers
    (kind, kind, type, 2).

    Zero where a kind, or one of the two, cannot run. `spread` are those of jobs alone whose workers
    are on several servers, if these matter; `alone` are then those of jobs that are placed as suits
    them best.
    """

    types: tuple[str, ...]
    kinds: tuple[JobKind, ...]
    alone: Floats
    together: Floats
    spread: Floats | None = None

    def on(self, types: Sequence[str], per_server: Mapping[str, float] = {}) -> Throughputs:
        """Restricts the table to these worker types, in this order.

        `per_server` has the types on which jobs may be spread over servers, with the workers of a
        server (infinite if unknown).
        """
        apart = [name + SPREAD for name in per_server]
        missing = [name for name in (*types, *apart) if name not in self.types]
        if missing:
            raise BadWorkload(
                f"no throughput was measured on {missing[0]!r} (measured: {', '.join(self.types)})"
            )

        at = [self.types.index(name) for name in types]
        alone = self.alone[:, at]
        scale = np.array([kind.scale for kind in self.kinds])
        together = self.together[:, :, at]
        chosen = replace(self, types=tuple(types), alone=alone, together=together)
        if not per_server:
            return chosen

        spread = alone.copy()
        columns = [self.types.index(name) for name in apart]
        spread[:, [types.index(name) for name in per_server]] = self.alone[:, columns]
        spread[scale == 1] = alone[scale == 1]
        per_server_sizes = [per_server.get(name, np.inf) for name in types]
        sizes = np.array(per_server_sizes)

        placement = Placement(alone, spread, sizes)
        best = placement.best(scale)
        return replace(chosen, alone=best, spread=spread)

    @property
    def reference(self) -> int:
        """The type on which durations are drawn: the one where kinds run at the largest share of
        their best, on average."""
        best = self.alone.max(axis=1, keepdims=True)
        relative = np.divide(self.alone, best, out=np.zeros_like(self.alone), where=best > 0)
        return int(relative.mean(axis=0).argmax())


@dataclass(frozen=True, slots=True)
class ClusterWorkload:
    """Jobs as columns, by arrival. The deadline is `slo_factor` times the job's duration alone on
    its fastest type.

    `slo_factor` is infinite for a job without a deadline. `names` come from the trace, or are
    numbers. `weight` is a job's priority, and `owner` the entity that each job belongs to; empty if
    there are no `entities`.
    """

    throughputs: Throughputs
    names: tuple[str, ...]
    kind: Ints
    steps: Floats
    arrival: Floats
    weight: Floats
    slo_factor: Floats
    owner: tuple[str, ...] = ()
    entities: tuple[Entity, ...] = ()

    @property
    def rates(self) -> Floats:
        """Steps per second of each job, alone on each type."""
        return self.throughputs.alone[self.kind]

    @property
    def scale(self) -> Ints:
        """Number of workers that each job holds while it runs."""
        scales = [kind.scale for kind in self.throughputs.kinds]
        return np.array(scales, dtype=np.int64)[self.kind]

    def alone_seconds(self) -> Floats:
        """Duration of each job alone on its fastest type."""
        best = self.rates.max(axis=1, initial=0.0)
        never = np.full(len(best), np.inf)
        seconds = np.divide(self.steps, best, out=never, where=best > 0)
        return np.asarray(seconds)

    def with_entities(
        self, entities: Sequence[Entity], rng: np.random.Generator
    ) -> ClusterWorkload:
        """Gives each job an owner: its own if it has one, otherwise one of these entities at
        random.

        Raises BadWorkload if a job belongs to an entity that is not among these.
        """
        names = [entity.name for entity in entities]
        unnamed = (name for name in self.owner if name and name not in names)
        unknown = next(unnamed, None)
        if unknown is not None:
            raise BadWorkload(
                f"entity {unknown!r} of the trace is not defined (defined: {', '.join(names)})"
            )

        drawn = rng.choice(np.array(names), len(self.names)).tolist()
        owners = self.owner or ("",) * len(self.names)
        joined = (name or other for name, other in zip(owners, drawn, strict=True))
        owner = tuple(joined)
        return replace(self, owner=owner, entities=tuple(entities))


@dataclass(frozen=True, slots=True)
class ClusterSimulation:
    """A workload on a cluster, until the measured jobs are done; the others keep the cluster busy
    until then.

    `believed` are the throughputs that the scheduler assumes for pairs that share workers; None if
    no jobs share them. Allocations are computed when jobs come or go, at most once in
    `allocation_seconds`; a move takes a job `checkpoint_seconds`. `per_server` are the workers of a
    server by type (infinite if unknown); None if servers do not matter. With `drops`, a job with
    fewer steps left than workers fails, and is dropped after five rounds. Defaults are the
    published simulator's: rounds of six minutes, at least 1,920 s between allocations, free moves.
    """

    workload: ClusterWorkload
    cluster: Cluster
    measured: range
    round_seconds: float = 360.0
    allocation_seconds: float = 1920.0
    checkpoint_seconds: float = 0.0
    believed: Throughputs | None = None
    per_server: Floats | None = None
    drops: bool = False

    def __post_init__(self) -> None:
        jobs = len(self.workload.names)
        if not self.measured or self.measured.start < 0 or self.measured.stop > jobs:
            raise BadWorkload(
                f"jobs {self.measured.start}:{self.measured.stop} are outside the workload of "
                f"{jobs} jobs"
            )

        if self.workload.throughputs.types != self.cluster.types:
            raise BadWorkload(
                "the workload's throughputs are not of the cluster's types (Throughputs.on)"
            )

        # An implausible number of rounds: the input must be wrong.
        rounds = self.workload.alone_seconds() / self.round_seconds
        endless = np.flatnonzero(np.isfinite(rounds) & (rounds > _MAX_ROUNDS))
        if endless.size:
            m = int(endless[0])
            raise BadWorkload(
                f"job {self.workload.names[m]}: takes {rounds[m]:.3g} rounds of "
                f"{self.round_seconds:g} s where"
                f" it is fastest, more than {_MAX_ROUNDS:,}; use fewer steps or longer rounds"
            )

        scale = self.workload.scale[:, None] <= self.cluster.workers
        fits = (self.workload.rates > 0) & scale
        stuck = np.flatnonzero(~fits.any(axis=1))
        if stuck.size:
            first_stuck = int(self.workload.kind[stuck[0]])
            kind = self.workload.throughputs.kinds[first_stuck]
            raise BadWorkload(
                f"job {self.workload.names[int(stuck[0])]} ({kind.name}, {kind.scale} workers) and "
                f"{stuck.size - 1}"
                " more run on no type of this cluster; add workers to a type that they run on"
            )


def generate(
    throughputs: Throughputs, mean_seconds: float, count: int, seed: int, *, multiple: bool = False
) -> ClusterWorkload:
    """Jobs as published (section 5.7.1): uniform kinds, Poisson arrivals, steps from a duration on
    the reference type.

    `mean_seconds` are those between two arrivals (0: all at once), and `multiple` says whether some
    jobs are distributed. A longer workload with the same seed begins with the shorter one.
    """
    times, sizes, kinds, lengths = (np.random.default_rng([seed, stream]) for stream in range(4))
    gaps = times.exponential(1.0, count) * mean_seconds
    odds = np.cumsum(SCALE_ODDS)
    draws = sizes.random(count)
    drawn = np.searchsorted(odds[:-1], draws, side="right")
    scale = SCALES[drawn] if multiple else np.ones(count, dtype=np.int64)
    kind = _kinds(throughputs, scale, kinds.random(count))
    rate = throughputs.alone[kind, throughputs.reference]
    uniform = lengths.random((count, 2))
    is_short_draw = uniform[:, :1]
    is_short = is_short_draw < SHORT_ODDS
    low, high = np.where(is_short, SHORT, LONG).T
    exponent = (high - low) * uniform[:, 1]
    seconds = 60.0 * 10.0 ** (low + exponent)
    steps = np.maximum(np.floor(rate * seconds), 1.0)
    names = tuple(str(number) for number in range(count))
    arrival = np.cumsum(gaps) - (gaps[0] if count else 0.0)

    no_deadline = np.full(count, np.inf)
    return ClusterWorkload(throughputs, names, kind, steps, arrival, np.ones(count), no_deadline)


def _kinds(throughputs: Throughputs, scale: Ints, uniform: Floats) -> Ints:
    """A kind for each job, uniform among those measured at its scale on the reference type."""
    measured = throughputs.alone[:, throughputs.reference] > 0
    kinds = np.empty(len(scale), dtype=np.int64)
    for workers in np.unique(scale).tolist():
        kinds_numbered = enumerate(throughputs.kinds)
        of_scale = [k for k, kind in kinds_numbered if kind.scale == workers and measured[k]]
        if not of_scale:
            raise BadWorkload(
                f"no kind of job was measured on {workers} workers; use --scale single or other "
                "throughputs"
            )
        wanted = scale == workers
        places = uniform[wanted] * len(of_scale)
        kinds[wanted] = np.array(of_scale)[places.astype(np.int64)]

    return kinds


def with_estimated_pairs(throughputs: Throughputs, measured: int, seed: int) -> Throughputs:
    """The throughputs as a scheduler believes them that measures only `measured` pairs of each kind
    of job.

    Each single-worker kind that runs on every type is new in turn: its pairs are estimated from the
    measured ones, with the other kinds as references. A pair that neither side measured gets the
    mean of both estimates. Whether two jobs fit on a worker together is known for all pairs.
    """
    single = [
        i
        for i, kind in enumerate(throughputs.kinds)
        if kind.scale == 1 and (throughputs.alone[i] > 0).all()
    ]

    cells = np.ix_(single, single)
    alone = throughputs.alone[single]
    truth = throughputs.together[cells]
    seen = _measured_cells(truth.shape[:3], measured, seed)
    estimates = truth.copy()

    for new in range(len(single)):
        kept = np.delete(np.arange(len(single)), new)
        cells_seen = seen[new, kept]
        true_values = truth[new, kept]
        known = np.where(cells_seen[:, :, None], true_values, np.nan)
        known_pairs = truth[np.ix_(kept, kept)]
        estimates[new, kept] = pairs_of_new(alone[kept], known_pairs, alone[new], known)

    swapped = seen.swapaxes(0, 1)
    seen_both = (seen | swapped)[..., None]
    either = seen_both | (truth == 0)
    believed = throughputs.together.copy()
    # The other side's estimate has the two jobs in the opposite order.
    mirrored = estimates.swapaxes(0, 1)
    mean = (estimates + mirrored[..., ::-1]) / 2
    believed[cells] = np.where(either, truth, mean)
    return replace(throughputs, together=believed)


def _measured_cells(shape: tuple[int, int, int], measured: int, seed: int) -> Bools:
    """Which pairs (job, other job, type) are measured: as many for each job, drawn at random, and
    jobs of one kind.
    """
    kinds, _, types = shape
    if kinds < 4 or not 0 < measured <= (kinds - 1) * types:
        raise BadFingerprint(
            f"{measured} measured pairs per kind of job: estimates need at least four kinds that "
            f"run on every type, and from 1 to {max(kinds - 1, 0) * types} pairs of each"
        )

    seen = np.zeros(shape, dtype=np.bool_)
    for new in range(kinds):
        rng = np.random.default_rng([seed, new])
        cells = (kinds - 1) * types
        drawn = rng.choice(cells, size=measured, replace=False)
        others = np.zeros((kinds - 1) * types, dtype=np.bool_)
        others[drawn] = True
        seen[new, np.delete(np.arange(kinds), new)] = others.reshape(kinds - 1, types)
        seen[new, new] = True

    return seen

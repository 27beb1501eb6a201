"""Everything that a simulation depends on."""

from dataclasses import dataclass, field

import numpy as np

from bidbrain.gavel.problem import Cluster
from bidbrain.gavel.workload import BadWorkload, ClusterWorkload, Throughputs

_MOST_ROUNDS = 10_000_000


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How a cluster is run. Allocations are computed when jobs come or go, at most once in `allocation_seconds`.

    Defaults are the published simulator's: rounds of six minutes, at least 1,920 s between allocations, free moves.
    """

    round_seconds: float = 360.0
    allocation_seconds: float = 1920.0
    checkpoint_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which pairs may share workers: those that together do more than `gain` times the work of one alone.

    Only the best `partners` of each job count: the rest rarely get time, and the number of pairs grows quadratically.
    `believed` are the throughputs that the scheduler assumes for pairs; None means the true ones.
    """

    gain: float = 1.1
    partners: int = 4
    believed: Throughputs | None = None


@dataclass(frozen=True, slots=True)
class ClusterSimulation:
    """A workload on a cluster, until the measured jobs are done; the others keep the cluster busy until then."""

    workload: ClusterWorkload
    cluster: Cluster
    measured: range
    settings: SimulationSettings = field(default_factory=SimulationSettings)
    sharing: Sharing | None = None

    def __post_init__(self) -> None:
        jobs = len(self.workload.names)
        if not self.measured or self.measured.start < 0 or self.measured.stop > jobs:
            raise BadWorkload(
                f"jobs {self.measured.start}:{self.measured.stop} are outside the workload of {jobs} jobs"
            )
        if self.workload.throughputs.types != self.cluster.types:
            raise BadWorkload("the workload's throughputs are not of the cluster's types (Throughputs.on)")
        self._check_lengths()
        fits = (self.workload.rates > 0) & (self.workload.scale[:, None] <= self.cluster.workers)
        stuck = np.flatnonzero(~fits.any(axis=1))
        if stuck.size:
            kind = self.workload.throughputs.kinds[int(self.workload.kind[stuck[0]])]
            raise BadWorkload(
                f"job {self.workload.names[int(stuck[0])]} ({kind.name}, {kind.scale} workers) and {stuck.size - 1}"
                " more run on no type of this cluster; add workers to a type that they run on"
            )

    def _check_lengths(self) -> None:
        """Refuses jobs with an implausible number of rounds: the input must be wrong."""
        rounds = self.workload.alone_seconds() / self.settings.round_seconds
        endless = np.flatnonzero(np.isfinite(rounds) & (rounds > _MOST_ROUNDS))
        if endless.size:
            m = int(endless[0])
            raise BadWorkload(
                f"job {self.workload.names[m]}: takes {rounds[m]:.3g} rounds of {self.settings.round_seconds:g} s where"
                f" it is fastest, more than {_MOST_ROUNDS:,}; use fewer steps or longer rounds"
            )

"""First in, first out, as in the published simulator: jobs start in order and run to their end, or also move."""

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates
from bidbrain.gavel.simulator.dispatch import ClusterState
from bidbrain.gavel.simulator.scenario import ClusterSimulation


class InOrder:
    """A queue without preemption. The head takes its fastest type with room, or with `rng` a random one.

    Starts are decided as often as others allocate: when jobs came or went, at most once in `allocation_seconds`. With
    `moves` every decision is made for all jobs again (the published `fifo_perf`), so that earlier jobs move to faster
    types that have become free.
    """

    def __init__(
        self, scenario: ClusterSimulation, blind: np.random.Generator | None = None, *, moves: bool = False
    ) -> None:
        self._scenario, self._blind, self._moves = scenario, blind, moves
        self._rates, self._scale = scenario.workload.rates, scenario.workload.scale
        self._type_of: dict[int, int] = {}
        self._since, self._stale = -np.inf, True
        self.allocations, self.patience = 0, np.inf

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """All started jobs, after starting those that are next."""
        self._stale |= state.changed
        waited = state.now - self._since >= self._scenario.settings.allocation_seconds
        if self._stale and (waited or not self._type_of):
            # As published, the first decision is replaced as soon as a job comes or goes.
            self._since, self._stale = state.now if self.allocations else -np.inf, False
            self.allocations += 1
            self._start(state.active)
        jobs = np.fromiter(self._type_of, np.int64, len(self._type_of))
        types = np.fromiter(self._type_of.values(), np.int64, len(self._type_of))
        return RoundCandidates(jobs, np.full(len(jobs), NO_JOB), types, self._scale[jobs])

    def book_round(self, _seconds: FloatArray, finished: IntArray) -> None:
        """Finished jobs free their workers."""
        for job in finished.tolist():
            del self._type_of[job]

    def _start(self, active: IntArray) -> None:
        if self._moves:
            self._type_of.clear()
        free = self._scenario.cluster.workers.copy()
        for job, type_ in self._type_of.items():
            free[type_] -= self._scale[job]
        for job in active.tolist():
            if job in self._type_of:
                continue
            fits = self._scale[job] <= free
            if not fits.any():
                return
            room = np.flatnonzero((self._rates[job] > 0) & fits)
            if not room.size:
                continue
            type_ = int(self._blind.choice(room) if self._blind else room[self._rates[job, room].argmax()])
            self._type_of[job] = type_
            free[type_] -= self._scale[job]

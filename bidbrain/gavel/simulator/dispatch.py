"""Chooses what runs in the next round, from a policy's shares and the time received so far."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray, IntArray
from bidbrain.gavel.policies.base import Policy, Warm
from bidbrain.gavel.problem import AllocationProblem, ClusterJobs, Pairs
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates, choose, priorities
from bidbrain.gavel.simulator.pairs import good_pairs
from bidbrain.gavel.simulator.scenario import ClusterSimulation, Sharing

# Smaller shares are rounding errors of zero.
_NO_SHARE = 1e-9
# Least time that a candidate counts as having received, as a fraction of half a round; keeps priorities finite.
_LEAST_RECEIVED = 1e-6
_MARGIN_ROUNDS, _RESERVE_USED = 2, 0.99


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster at the start of a round: active jobs, their remaining steps, and whether jobs came or went."""

    now: float
    active: IntArray
    steps_left: FloatArray
    changed: bool


class Dispatcher(Protocol):
    """A way of running a cluster."""

    @property
    def allocations(self) -> int:
        """Number of allocations computed."""

    @property
    def patience(self) -> float:
        """Seconds after which the dispatcher may reallocate although no job came or went."""

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """The candidates that run in the round that begins now, possibly none."""

    def book_round(self, seconds: FloatArray, finished: IntArray) -> None:
        """Reports how long each candidate ran in the round that ended, and which jobs finished."""


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """How shares are used.

    `beyond_shares`: remaining workers go to jobs that have a share of another type but none of this one, first to those
    owed most from earlier allocations. Off for policies that leave workers idle to save cost. `periodic`: allocations
    are recomputed although no job came or went, for policies that plan ahead.
    """

    beyond_shares: bool = True
    periodic: bool = False


class ByShares:
    """Gavel's dispatcher: X by a policy, realized through priorities. A job without any share does not run."""

    def __init__(self, scenario: ClusterSimulation, policy: Policy, rules: DispatchRules | None = None) -> None:
        workload, settings = scenario.workload, scenario.settings
        self._scenario, self._policy, self._warm = scenario, policy, Warm()
        self._rules = rules or DispatchRules()
        self._rates, self._scale = workload.rates, workload.scale
        self._best = np.where(self._scale[:, None] <= scenario.cluster.workers, self._rates, 0.0).max(axis=1)
        self._slo_seconds = workload.slo_factor * workload.alone_seconds()
        self._owed = np.zeros(self._rates.shape)
        # One more entry, for `NO_JOB`, which is never gone.
        self._gone = np.zeros(len(workload.names) + 1, dtype=bool)
        # Half a round, so that a share with nothing received yet does not have infinite priority.
        self._head_start = settings.round_seconds / 2
        self._grant = _Grant.nothing(len(scenario.cluster.types))
        self._chosen = np.zeros(0, dtype=np.int64)
        self._since, self._stale = -np.inf, True
        self.allocations = 0
        again = max(settings.allocation_seconds, settings.round_seconds)
        self.patience = again if self._rules.periodic else np.inf

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """Reallocates where due, and chooses; if no job could run, an allocation is always due."""
        self._stale |= state.changed or self._rules.periodic
        if not state.active.size:
            return self._grant.candidates
        if self._stale and state.now - self._since >= self._scenario.settings.allocation_seconds:
            self._allocate(state)
        chosen = self._choose()
        if self._stale and not len(chosen.first):
            self._allocate(state)
            chosen = self._choose()
        return chosen

    def book_round(self, seconds: FloatArray, finished: IntArray) -> None:
        """Books the time and removes finished jobs."""
        self._grant.book(self._chosen, seconds)
        if finished.size:
            self._gone[finished] = True
            among = self._grant.candidates
            self._grant.keep(~(self._gone[among.first] | self._gone[among.second]))

    def _choose(self) -> RoundCandidates:
        grant = self._grant
        # A type that idles intentionally gives little time in total, so its share of that says nothing about a job's
        # time.
        of_type = grant.of_type if self._rules.beyond_shares else np.ones(len(grant.of_type))
        priority = priorities(grant.share, grant.received, grant.candidates.type, of_type)
        self._chosen = choose(grant.candidates, priority, self._scenario.cluster.workers)
        return grant.candidates.only(self._chosen)

    def _allocate(self, state: ClusterState) -> None:
        self._settle(state.now)
        problem = self._problem(state)
        shares = self._policy.allocate(problem, self._warm).shares
        self._since, self._stale = state.now, False
        self.allocations += 1
        self._grant = self._granted(state.active, problem.pairs, np.where(shares > _NO_SHARE, shares, 0.0))

    def _settle(self, now: float) -> None:
        """Books as owed what single jobs should have received under the ending allocation, and did not."""
        elapsed = now - self._since if np.isfinite(self._since) else 0.0
        grant = self._grant
        alone = grant.candidates.second == NO_JOB
        first, type_ = grant.candidates.first[alone], grant.candidates.type[alone]
        self._owed[first, type_] += grant.share[alone] * elapsed - (grant.received[alone] - grant.start[alone])

    def _problem(self, state: ClusterState) -> AllocationProblem:
        active, workload = state.active, self._scenario.workload
        elapsed = state.now - workload.arrival[active]
        jobs = ClusterJobs(
            tuple(workload.names[m] for m in active.tolist()),
            self._rates[active],
            self._scale[active],
            workload.weight[active],
            state.steps_left[active],
            elapsed,
            self._slo_seconds[active] - self._margin(active, elapsed, state.steps_left[active]),
            workload.arrival[active],
            tuple(workload.owner[m] if workload.entities else None for m in active.tolist()),
        )
        sharing = self._scenario.sharing
        pairs = None if sharing is None else self._pairs(active, sharing)
        here = {workload.owner[m] for m in active.tolist()} if workload.entities else set()
        entities = tuple(entity for entity in workload.entities if entity.name in here)
        return AllocationProblem(self._scenario.cluster, jobs, pairs, entities)

    def _pairs(self, active: IntArray, sharing: Sharing) -> Pairs:
        workload = self._scenario.workload
        believed = workload.throughputs if sharing.believed is None else sharing.believed
        return good_pairs(believed, workload.kind[active], sharing)

    def _margin(self, active: IntArray, elapsed: FloatArray, steps_left: FloatArray) -> FloatArray:
        """How much earlier than its deadline a job is planned to finish: rounds realize a plan up to two rounds late.

        At most the job's own reserve, less a little, so that the deadline is not at the very edge.
        """
        in_hand = self._slo_seconds[active] - elapsed - steps_left / self._best[active]
        most = _MARGIN_ROUNDS * self._scenario.settings.round_seconds
        return np.asarray(np.clip(_RESERVE_USED * in_hand, 0.0, most))

    def _granted(self, active: IntArray, pairs: Pairs | None, shares: FloatArray) -> "_Grant":
        """A candidate for each type on which a row of X with any share can run, those owed most first."""
        first, second = active, np.full(len(active), NO_JOB)
        can_run = self._rates[active] > 0
        if pairs is not None:
            first = np.concatenate([first, active[pairs.members[:, 0]]])
            second = np.concatenate([second, active[pairs.members[:, 1]]])
            can_run = np.concatenate([can_run, (pairs.throughputs > 0).all(axis=2)])
        scale = self._scale[first]
        meant = (shares.sum(axis=1) > 0)[:, None] if self._rules.beyond_shares else shares > 0
        row, type_ = np.nonzero(can_run & meant & (scale[:, None] <= self._scenario.cluster.workers))
        owed = np.where(second[row] == NO_JOB, self._owed[first[row], type_], 0.0)
        order = np.argsort(-owed, kind="stable")
        row, type_ = row[order], type_[order]
        # Allocations are short: without carrying debts over, jobs with many workers and small shares would starve.
        start = np.maximum(self._head_start - owed[order], _LEAST_RECEIVED * self._head_start)
        of_type = np.bincount(type_, start, len(self._scenario.cluster.types)).astype(np.float64)
        among = RoundCandidates(first[row], second[row], type_, scale[row])
        return _Grant(among, shares[row, type_], start, start.copy(), of_type)


@dataclass(slots=True)
class _Grant:
    """An allocation in force: each candidate's share and the seconds it received, and all seconds given per type.

    `start` is the time that it counted as having received when the allocation began.
    """

    candidates: RoundCandidates
    share: FloatArray
    start: FloatArray
    received: FloatArray
    of_type: FloatArray

    @classmethod
    def nothing(cls, types: int) -> "_Grant":
        """The state before the first allocation."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(RoundCandidates(empty, empty, empty, empty), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(types))

    def book(self, chosen: IntArray, seconds: FloatArray) -> None:
        """Adds the time that candidates ran."""
        self.received[chosen] += seconds
        self.of_type += np.bincount(self.candidates.type[chosen], seconds, len(self.of_type))

    def keep(self, kept: BoolArray) -> None:
        """Drops the other candidates; the time they received still counts in the totals."""
        self.candidates = self.candidates.only(kept)
        self.share, self.start, self.received = self.share[kept], self.start[kept], self.received[kept]

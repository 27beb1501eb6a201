"""Dispatchers choose what runs in the next round: from a policy's shares and the time received so
far, first in first out, or within a budget.

In the queue, as in the published simulator, jobs start in order and run to their end, or also move.
Within a budget, each allocation may use the dollars that are not spent yet.
"""

import random
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.gavel.baselines import (
    Agnostic,
    Policy,
    isolated_policy,
    isolated_shares,
    proportional_policy,
)
from bidbrain.gavel.linear import BudgetTooLow
from bidbrain.gavel.problem import NO_TYPE, AllocationProblem, ClusterAllocation, ClusterJobs, Pairs
from bidbrain.lab.gavel.rounds import NO_JOB, RoundCandidates, RoundChoice
from bidbrain.lab.gavel.workload import ClusterSimulation, ClusterWorkload, Throughputs

# Smaller shares are rounding errors of zero.
_NO_SHARE = 1e-9
# Least time that a candidate counts as having received, as a fraction of half a round; keeps
# priorities finite.
_MIN_RECEIVED = 1e-6
_MARGIN_ROUNDS, _RESERVE_USED = 2, 0.99
_DEBT_DIGITS = 6
# Until then a plan changes little: after one round or ten, simulations miss the same deadlines at
# the same cost.
PLAN_ROUNDS = 10
# Jobs share workers if both together do more than this times the work of one alone. Only the best
# partners of each job count: the rest rarely get time, and the number of pairs grows quadratically.
_SHARING_GAIN, _PARTNERS = 1.1, 4
# The seed of the published simulator for the order of types.
_ORDER_SEED = 5


class Dispatcher(Protocol):
    """A way of running a cluster."""

    allocations: int
    """Number of allocations computed."""
    patience: float
    """Seconds after which the dispatcher may reallocate although no job came or went."""

    def dispatch(
        self, now: float, active: Ints, steps_left: Floats, *, changed: bool
    ) -> RoundCandidates:
        """The candidates that run in the round that begins now, possibly none.

        `active` are the jobs that are there, and `changed` says whether jobs came or went; all jobs
        have `steps_left`.
        """

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Reports how long each candidate ran in the round that ended, and which jobs finished."""


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """How shares are used.

    `beyond_shares`: remaining workers go to jobs that have no share of them, first to those owed
    most from earlier allocations. Off for policies that leave workers idle to save cost.
    `periodic`: allocations are recomputed every `PLAN_ROUNDS` rounds although no job came or went,
    for policies that plan ahead. `debt_rounds`: a debt of earlier allocations counts as far as it
    exceeds this number of rounds; smaller ones only break ties. `newcomers_wait`: jobs that came
    after the last allocation are chosen for workers that no job has a share of, and do not run on
    them before the next allocation. `blind`: types choose in random order, also for a policy that
    does not say itself that it ignores types.
    """

    beyond_shares: bool = True
    periodic: bool = False
    debt_rounds: float = 20
    newcomers_wait: bool = False
    blind: bool = False


class ByShares:
    """Gavel's dispatcher: X by a policy, realized through priorities.

    As in the published simulator, types choose one after the other, the fastest first; under
    policies that ignore differences between types, they choose in random order.
    """

    def __init__(
        self, scenario: ClusterSimulation, policy: Policy, rules: DispatchRules | None = None
    ) -> None:
        workload = scenario.workload
        self._scenario = scenario
        self._policy = policy
        self._rules = rules or DispatchRules()
        self._rates = workload.rates
        self._scale = workload.scale
        fits = self._scale[:, None] <= scenario.cluster.workers
        usable = np.where(fits, self._rates, 0.0)
        self._best = usable.max(axis=1)
        self._slo_seconds = workload.slo_factor * workload.alone_seconds()
        self._owed = np.zeros(self._rates.shape)
        slowest = -_speed(workload)
        self._order: list[int] = np.argsort(slowest, kind="stable").tolist()
        blind = (
            self._rules.blind
            or isinstance(policy, Agnostic)
            or policy in (isolated_policy, proportional_policy)
        )

        # The published order, no secret.
        self._drawn = random.Random(_ORDER_SEED) if blind else None  # noqa: S311
        # Time that the steps done so far would have taken with 1/n of the cluster, and the pace of
        # that.
        self._isolated = np.zeros(len(workload.names))
        self._pace = np.ones(len(workload.names))
        self._steps = workload.steps.copy()
        self._begun = np.full(len(workload.names), NO_TYPE)

        # One more entry, for `NO_JOB`, which is never gone.
        self._gone = np.zeros(len(workload.names) + 1, dtype=bool)
        self._allocated = np.zeros(len(workload.names), dtype=bool)
        # Half a round, so that a share with nothing received yet does not have infinite priority.
        self._head_start = scenario.round_seconds / 2
        nobody = np.zeros(0, dtype=np.int64)
        nothing = np.zeros(0)
        among = RoundCandidates(nobody, nobody, nobody, nobody)
        self._grant = _Grant.of(among, nothing, nothing, scenario.cluster.workers)
        self._chosen = np.zeros(0, dtype=np.int64)
        self._since = -np.inf
        self._waits_from = -np.inf
        self._stale = True
        self._last_arrival = float(workload.arrival[-1])
        self.allocations = 0
        again = max(scenario.allocation_seconds, scenario.round_seconds)
        self.patience = again if self._rules.periodic else np.inf

    def dispatch(
        self, now: float, active: Ints, steps_left: Floats, *, changed: bool
    ) -> RoundCandidates:
        """Reallocates where due, and chooses; if no job could run, an allocation is always due."""
        old = now - self._since >= PLAN_ROUNDS * self._scenario.round_seconds
        self._stale |= changed or (self._rules.periodic and old)
        due = now - self._waits_from >= self._scenario.allocation_seconds
        wait = self._rules.newcomers_wait

        if not active.size:
            if wait and self._stale and due:
                # As published, the allocation of an empty cluster counts.
                self._waits_from = now
                self._stale = False
            return self._grant.candidates

        if self._stale and due:
            self._allocate(now, active, steps_left)
        elif wait and changed and self._rules.beyond_shares:
            self._admit(active)

        chosen = self._choose()
        if self._stale and not len(chosen.first) and not (wait and now < self._last_arrival):
            self._allocate(now, active, steps_left)
            chosen = self._choose()

        return chosen

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Books the time and removes finished jobs."""
        self._grant.received[self._chosen] += seconds
        if finished.size:
            self._gone[finished] = True
            among = self._grant.candidates
            is_gone = self._gone[among.first] | self._gone[among.second]
            left = ~is_gone
            self._grant = self._grant.only(left, self._scenario.cluster.workers)

    def _choose(self) -> RoundCandidates:
        grant: _Grant = self._grant
        order: list[int] | None = self._order
        if not self._rules.beyond_shares:
            # A type that idles intentionally must not draw jobs away from those that they have more
            # of their time on.
            order = None
        elif self._drawn is not None:
            order = list(self._order)
            self._drawn.shuffle(order)

        self._chosen = grant.choice.next(grant.share / grant.received, order)
        if self._rules.newcomers_wait:
            first = grant.candidates.first[self._chosen]
            is_allocated = self._allocated[first]
            self._chosen = self._chosen[is_allocated]

        return grant.candidates.only(self._chosen)

    def _admit(self, active: Ints) -> None:
        """Adds jobs that came after the last allocation, with no share and owed nothing."""
        grant = self._grant
        workers = self._scenario.cluster.workers
        new = np.setdiff1d(active, grant.candidates.first)
        can_run = (self._rates[new] > 0) & (self._scale[new, None] <= workers)
        row, type_ = np.nonzero(can_run)
        first = np.concatenate([grant.candidates.first, new[row]])
        alone = np.full(len(row), NO_JOB)
        second = np.concatenate([grant.candidates.second, alone])
        types = np.concatenate([grant.candidates.type, type_])
        owed_of_jobs = self._owed[first, types]
        owed = np.where(second == NO_JOB, owed_of_jobs, 0.0)
        rounded = np.round(owed, _DEBT_DIGITS)
        order = np.argsort(-rounded, kind="stable")
        candidates = RoundCandidates(first, second, types, self._scale[first])
        among = candidates.only(order)
        nothing = np.zeros(len(row))
        shares = np.concatenate([grant.share, nothing])
        share = shares[order]
        start, received = (
            np.concatenate([part, np.full(len(row), self._head_start)])[order]
            for part in (grant.start, grant.received)
        )
        self._grant = _Grant(among, share, start, received, RoundChoice(among, workers))

    def _allocate(self, now: float, active: Ints, steps_left: Floats) -> None:
        # What single jobs should have received under the ending allocation, and did not, is owed to
        # them.
        elapsed = 0.0
        if np.isfinite(self._since):
            elapsed = now - self._since
        grant = self._grant
        by_itself = grant.candidates.second == NO_JOB
        first = grant.candidates.first[by_itself]
        type_ = grant.candidates.type[by_itself]
        received = grant.received[by_itself] - grant.start[by_itself]
        due = grant.share[by_itself] * elapsed
        self._owed[first, type_] += due - received

        problem = self._problem(now, active, steps_left)
        shares = self._policy(problem).shares
        # The first allocation is replaced as soon as a job comes or goes; as published, one at the
        # moment 0.
        is_late = now > 0 if self._rules.newcomers_wait else self.allocations
        self._waits_from = now if is_late else -np.inf
        self._since = now
        self._stale = False
        self._allocated[:] = False
        self._allocated[active] = True
        self.allocations += 1

        # The types that jobs are given all of the time, and at what pace they would progress in
        # isolation.
        alone = shares[: len(active)]
        has_one = (alone == 1).any(axis=1)
        self._begun[active] = np.where(has_one, alone.argmax(axis=1), NO_TYPE)
        isolated = problem.jobs.throughputs * isolated_shares(problem)
        self._pace[active] = isolated.sum(axis=1)
        self._steps[active] = problem.jobs.steps
        clear = np.where(shares > _NO_SHARE, shares, 0.0)
        self._grant = self._granted(active, problem.pairs, clear)

    def _problem(self, now: float, active: Ints, steps_left: Floats) -> AllocationProblem:
        workload = self._scenario.workload
        elapsed = now - workload.arrival[active]
        done = self._steps[active] - steps_left[active]
        pace = self._pace[active]
        no_time = np.zeros(len(active))
        self._isolated[active] += np.divide(done, pace, out=no_time, where=pace > 0)

        # Jobs are planned to finish earlier than their deadlines, because rounds realize a plan up
        # to two rounds late. At most by their own reserve, less a little, so that the deadline is
        # not at the very edge.
        slack = self._slo_seconds[active] - elapsed
        needed = steps_left[active] / self._best[active]
        in_hand = slack - needed
        most = _MARGIN_ROUNDS * self._scenario.round_seconds
        margin = np.clip(_RESERVE_USED * in_hand, 0.0, most)
        numbers = active.tolist()
        owners = [workload.owner[m] if workload.entities else None for m in numbers]
        names = tuple(workload.names[m] for m in numbers)
        slo = self._slo_seconds[active] - margin
        jobs = ClusterJobs(
            names,
            self._rates[active],
            self._scale[active],
            workload.weight[active],
            steps_left[active],
            elapsed,
            slo,
            workload.arrival[active],
            tuple(owners),
            self._isolated[active],
            self._begun[active],
        )

        believed = self._scenario.believed
        pairs = None
        if believed is not None:
            pairs = good_pairs(believed, workload.kind[active])
        owners_entities = (entity for entity in workload.entities if entity.name in owners)
        entities = tuple(owners_entities)
        return AllocationProblem(self._scenario.cluster, jobs, pairs, entities, centered=True)

    def _granted(self, active: Ints, pairs: Pairs | None, shares: Floats) -> "_Grant":
        """A candidate for each type on which a row of X can run; where priorities are equal, those
        owed most come first."""
        first = active
        second = np.full(len(active), NO_JOB)
        can_run = self._rates[active] > 0
        if pairs is not None:
            first_of_pairs = active[pairs.members[:, 0]]
            first = np.concatenate([first, first_of_pairs])
            second_of_pairs = active[pairs.members[:, 1]]
            second = np.concatenate([second, second_of_pairs])
            pairs_run = (pairs.throughputs > 0).all(axis=2)
            can_run = np.concatenate([can_run, pairs_run])

        scale = self._scale[first]
        if not self._rules.beyond_shares:
            can_run = can_run & (shares > 0)

        fits = scale[:, None] <= self._scenario.cluster.workers
        row, type_ = np.nonzero(can_run & fits)
        is_alone = second[row] == NO_JOB
        owed_of_rows = self._owed[first[row], type_]
        owed = np.where(is_alone, owed_of_rows, 0.0)
        # Without rounding errors, which are no debts.
        rounded = np.round(owed, _DEBT_DIGITS)
        order = np.argsort(-rounded, kind="stable")
        row = row[order]
        type_ = type_[order]
        owed = owed[order]

        # Allocations are short: without carrying large debts over, jobs with many workers and small
        # shares would starve.
        allowed = self._rules.debt_rounds * self._scenario.round_seconds
        debt = np.maximum(owed - allowed, 0.0)
        start = np.maximum(self._head_start - debt, _MIN_RECEIVED * self._head_start)
        among = RoundCandidates(first[row], second[row], type_, scale[row])
        shares_of_rows = shares[row, type_]
        return _Grant.of(among, shares_of_rows, start, self._scenario.cluster.workers)


def good_pairs(throughputs: Throughputs, kind: Ints) -> Pairs:
    """For each job its best partners among those with which sharing gains enough."""
    alone = throughputs.alone
    together = throughputs.together
    together_run = (together > 0).all(axis=3)
    first_runs = alone[:, None]
    second_runs = alone[None, :]
    both = together_run & (first_runs > 0) & (second_runs > 0)
    divisor = np.where(alone > 0, alone, 1.0)
    first_share = together[..., 0] / divisor[:, None]
    second_share = together[..., 1] / divisor[None, :]
    sums = first_share + second_share
    useful = np.where(both, sums, 0.0)
    most = useful.max(axis=2, initial=0.0)
    cells = np.ix_(kind, kind)
    gain = most[cells]
    np.fill_diagonal(gain, 0.0)
    count = min(_PARTNERS, max(len(kind) - 1, 0))
    by_gain = np.argsort(-gain, axis=1, kind="stable")
    best = by_gain[:, :count]
    wanted = np.zeros(gain.shape, dtype=bool)
    np.put_along_axis(wanted, best, True, axis=1)
    both_want = (wanted | wanted.T) & (gain > _SHARING_GAIN)
    first, second = np.nonzero(np.triu(both_want, k=1))

    members = np.column_stack([first, second])
    return Pairs(members, together[kind[first], kind[second]])


def _speed(workload: ClusterWorkload) -> Floats:
    """How fast each type is: its throughput over the fastest one, as a mean over the kinds of jobs
    that run there.
    """
    alone = workload.throughputs.alone
    best = alone.max(axis=1, keepdims=True)
    zeros = np.zeros(alone.shape)
    relative = np.divide(alone, best, out=zeros, where=best > 0)
    runs_on = (alone > 0).sum(axis=0)
    kinds = np.maximum(runs_on, 1)
    speed = relative.sum(axis=0) / kinds
    return np.asarray(speed)


@dataclass(slots=True)
class _Grant:
    """An allocation in force: each candidate's share, and the seconds it received.

    `start` is the time that it counted as having received when the allocation began.
    """

    candidates: RoundCandidates
    share: Floats
    start: Floats
    received: Floats
    choice: RoundChoice

    @classmethod
    def of(
        cls, candidates: RoundCandidates, share: Floats, start: Floats, workers: Floats
    ) -> "_Grant":
        """The state when an allocation begins."""
        return cls(candidates, share, start, start.copy(), RoundChoice(candidates, workers))

    def only(self, kept: Bools, workers: Floats) -> "_Grant":
        """Without the other candidates."""
        among = self.candidates.only(kept)
        choice = RoundChoice(among, workers)
        return _Grant(among, self.share[kept], self.start[kept], self.received[kept], choice)


# Margin on the least cost of the jobs, so that rounding does not make it insufficient.
_MIN_COST_MARGIN = 1 + 1e-6
_MIN_BUDGET = 1e-9


class InOrder:
    """A queue without preemption. The head takes its fastest type with room, or with `rng` a random
    one.

    Starts are decided as often as others allocate: when jobs came or went, at most once in
    `allocation_seconds`. With `moves` every decision is made for all jobs again (the published
    `fifo_perf`), so that earlier jobs move to faster types that have become free.
    """

    def __init__(
        self,
        scenario: ClusterSimulation,
        blind: np.random.Generator | None = None,
        *,
        moves: bool = False,
        newcomers_wait: bool = False,
    ) -> None:
        self._scenario = scenario
        self._blind = blind
        self._moves = moves
        self._waits = newcomers_wait
        self._last_arrival = float(scenario.workload.arrival[-1])
        self._rates = scenario.workload.rates
        self._scale = scenario.workload.scale
        self._type_of: dict[int, int] = {}
        self._since = -np.inf
        self._stale = True
        self.allocations = 0
        self.patience = np.inf

    def dispatch(
        self, now: float, active: Ints, _steps_left: Floats, *, changed: bool
    ) -> RoundCandidates:
        """All started jobs, after starting those that are next."""
        self._stale |= changed
        waited = now - self._since >= self._scenario.allocation_seconds
        idle = not self._type_of and not (self._waits and now < self._last_arrival)
        if self._stale and (waited or idle):
            # The first decision is replaced as soon as a job comes or goes; as published, one at
            # the moment 0.
            is_first = now > 0 if self._waits else self.allocations
            self._since = now if is_first else -np.inf
            self._stale = False
            self.allocations += 1
            self._start(active)

        jobs = np.fromiter(self._type_of, np.int64, len(self._type_of))
        types_of_jobs = self._type_of.values()
        types = np.fromiter(types_of_jobs, np.int64, len(self._type_of))
        nobody = np.full(len(jobs), NO_JOB)
        return RoundCandidates(jobs, nobody, types, self._scale[jobs])

    def book_round(self, _seconds: Floats, finished: Ints) -> None:
        """Finished jobs free their workers."""
        for job in finished.tolist():
            del self._type_of[job]

    def _start(self, active: Ints) -> None:
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

            chosen = (
                self._blind.choice(room) if self._blind else room[self._rates[job, room].argmax()]
            )
            type_ = int(chosen)
            self._type_of[job] = type_
            free[type_] -= self._scale[job]


class WithinBudget(ByShares):
    """Runs a cluster by `makespan-within-budget`; each allocation gets the remaining dollars.

    A round may exceed its part of the plan, by less than the cost of one round of the whole
    cluster; that amount is held back where possible. If later arrivals make the budget insufficient
    for all jobs, they run at their least cost. A budget that is insufficient for the first jobs is
    refused.
    """

    def __init__(self, scenario: ClusterSimulation, policy: Policy, budget_usd: float) -> None:
        # Idle workers are intended by this policy, so they stay idle.
        super().__init__(scenario, self._within_budget, DispatchRules(beyond_shares=False))
        self._budgeted = policy
        self._usd_left = budget_usd
        price = scenario.cluster.usd_per_hour
        self._usd_per_second = (
            np.zeros(len(scenario.cluster.types)) if price is None else price / 3600
        )
        usd_per_second = self._usd_per_second @ scenario.cluster.workers
        self._kept = float(usd_per_second) * scenario.round_seconds
        self._running: RoundCandidates | None = None

    def _within_budget(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """The policy's shares within the remaining budget, or at the least cost of all jobs."""
        try:
            left = max(self._usd_left - self._kept, _MIN_BUDGET)
            return self._budgeted(replace(problem, budget_usd=left))
        except BudgetTooLow as error:
            usd = error.least_usd * _MIN_COST_MARGIN
            if self._running is None and error.least_usd > self._usd_left:
                usd = self._usd_left
            return self._budgeted(replace(problem, budget_usd=max(usd, _MIN_BUDGET)))

    def dispatch(
        self, now: float, active: Ints, steps_left: Floats, *, changed: bool
    ) -> RoundCandidates:
        """The candidates that run in the round that begins now."""
        self._running = super().dispatch(now, active, steps_left, changed=changed)
        return self._running

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Pays for the round."""
        assert self._running is not None
        price = self._usd_per_second[self._running.type]
        spent = (seconds * self._running.scale) @ price
        self._usd_left -= float(spent)
        super().book_round(seconds, finished)

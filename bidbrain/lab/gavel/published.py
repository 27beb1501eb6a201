"""Choices of the published simulator that ours makes in another way, each of them a switch.

A simulation in published mode differs from the default by these only, so that turning one on or off
shows what it does.
"""

from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.baselines import Agnostic, Policy, allocation, isolated_shares, require_prices
from bidbrain.gavel.fairness import makespan_policy
from bidbrain.gavel.linear import normalized_worth
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, ShareColumns
from bidbrain.lab.gavel.dispatch import DispatchRules
from bidbrain.lab.gavel.workload import Throughputs
from bidbrain.lp import INF, LinearProgram, Solver

INTERVAL, IDLE, NO_DEBTS, WAIT = "interval", "idle-workers", "no-debts", "newcomers-wait"
STEPS, CENTERED, BISECTED, SPEEDS, LAST_TYPE = (
    "steps",
    "centered",
    "bisected",
    "uniform-speeds",
    "last-type",
)
DROPS, STOPPED = "drops", "stopped"
SWITCHES = frozenset(
    {INTERVAL, IDLE, NO_DEBTS, WAIT, STEPS, CENTERED, BISECTED, SPEEDS, LAST_TYPE, DROPS, STOPPED}
)
"""All switches; the help of `spotctl lab gavel simulate` says what each does."""

# The published bisection: where it begins, and when it ends.
_LOW, _HIGH, _NEAR_LEAST = 100.0, 1e6, 1.05
# The published solver: how often it scales rows and columns, its steps, and when it stops.
_SCALINGS, _STEP, _LONGEST, _MIN_PULL = 3, 0.99, 0.999, 1e-4
_MAX_STEPS, _SOLVED = 100, 1e-8
_REST, _ROUNDING = 1e-8, 1e-3


def rules_of(rules: DispatchRules, switches: Set[str]) -> DispatchRules:
    """The rules with the switches that concern rounds."""
    beyond = rules.beyond_shares or IDLE in switches
    debts = np.inf if NO_DEBTS in switches else rules.debt_rounds
    return replace(rules, beyond_shares=beyond, debt_rounds=debts, newcomers_wait=WAIT in switches)


def policy_of(name: str, switches: Set[str], throughputs: Throughputs, *, agnostic: bool) -> Policy:
    """The policy with the switches that concern its objective or its belief."""
    policy = policy_named(name)
    if switches & {STEPS, CENTERED} and name in {"max-throughput", "min-cost"}:
        steps = STEPS in switches
        centered = CENTERED in switches
        policy = partial(sum_policy, per_dollar=name == "min-cost", steps=steps, centered=centered)

    if BISECTED in switches and name == "makespan":
        policy = bisected_makespan_policy
    if STOPPED in switches and name == "max-min-fairness":
        policy = stopped_max_min_policy
    if not agnostic:
        return policy
    if SPEEDS in switches and name in {"max-min-fairness", "finish-time-fairness", "makespan"}:
        return UniformSpeeds(policy, None if name == "max-min-fairness" else throughputs.reference)

    return Agnostic(policy)


def sum_policy(
    problem: AllocationProblem,
    /,
    *,
    per_dollar: bool = False,
    steps: bool = True,
    centered: bool = True,
) -> ClusterAllocation:
    """`max-throughput`, or `min-cost` per dollar, with the published choices.

    With `steps`, jobs with short steps count more. If it is `centered`, jobs that are alike get the
    same.
    """
    columns = ShareColumns.of(problem)
    jobs = problem.jobs
    price = require_prices(problem, "min-cost") if per_dollar else None
    worth = normalized_worth(columns, price=price)
    if steps:
        _, column, throughput = columns.progress
        per_price = throughput if price is None else throughput / price[columns.type[column]]
        worth = np.bincount(column, per_price, columns.count).astype(np.float64)

    nothing = np.zeros(columns.count)
    endless = np.full(columns.count, INF)
    program = LinearProgram(worth, nothing, endless, columns.limits())
    solution = Solver(program).optimum()
    if not centered:
        return allocation(problem, columns.matrix(solution.x), solution.value)

    time, workers = np.split(np.abs(solution.prices), [len(jobs.ids)])
    # The published solver stops a little short: the closer a share is to be worth its price, the
    # more is left of it. Who has more of that gets the idle workers.
    priced = time[columns.row] + columns.held * workers[columns.type]
    lost = priced - worth
    least = _ROUNDING * worth.max()
    loss = np.maximum(lost, least)
    rest = _REST * worth.max() / loss
    spread = np.maximum(solution.x, rest)
    shares = columns.matrix(spread)
    kinds = np.column_stack([jobs.throughputs, jobs.scale])
    _, alike = np.unique(kinds, axis=0, return_inverse=True)
    sums = np.zeros((int(alike.max()) + 1, shares.shape[1]))
    np.add.at(sums, alike, shares)

    mean = sums / np.bincount(alike)[:, None]
    evened = mean[alike]
    return allocation(problem, evened, solution.value)


def bisected_makespan_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """The published makespan: a bisection that ends up to 5% above the least, and the X at which
    its solver stops.
    """
    jobs = problem.jobs
    least = makespan_policy(problem).objective
    low = _LOW
    high = _HIGH
    top = _HIGH
    reached = np.inf
    while not np.isfinite(reached):
        while _NEAR_LEAST * low < high:
            middle = (low + high) / 2
            if middle >= least:
                high = reached = middle
            else:
                low = middle
        low = top
        high = 10 * top
        top = 10 * top

    need = jobs.steps / reached
    rows = _Rows(jobs.throughputs, jobs.scale, problem.cluster.workers, need, lifted=False)
    return allocation(problem, _shares_at_the_end(problem, rows), reached)


def stopped_max_min_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """The published max-min fairness: the X at which its solver stops."""
    jobs = problem.jobs
    cluster = problem.cluster
    even = cluster.workers / cluster.workers.sum()
    equal = jobs.throughputs @ even
    usual = jobs.weight * equal / jobs.scale
    nonzero = np.where(usual > 0, usual, 1.0)[:, None]
    gain = jobs.throughputs / nonzero
    no_need = np.zeros(len(usual))
    rows = _Rows(gain, jobs.scale, cluster.workers, no_need, lifted=True)
    return allocation(problem, _shares_at_the_end(problem, rows), 0.0)


def _shares_at_the_end(problem: AllocationProblem, rows: "_Rows") -> Floats:
    """X where the published solver stops, without the time on types where a job cannot run."""
    point = _Embedded(rows)
    for _ in range(_MAX_STEPS):
        if point.is_solved():
            break
        try:
            point.advance()
        except np.linalg.LinAlgError:
            # As near to a corner as rounding allows.
            break

    shares = np.clip(point.shares(), 0.0, 1.0)
    return np.where(problem.jobs.throughputs > 0, shares, 0.0)


class _Rows:
    """The constraints `G x <= most`: shares are positive, workers and time suffice, and each job
    does its work.

    x are the shares of jobs by type, then a level, which all work exceeds if it is `lifted`, and is
    then maximized. Scaled so that the largest entries of rows and columns are about 1. Cells where
    a job cannot run count as well, as published.
    """

    def __init__(
        self, rate: Floats, scale: Ints, workers: Floats, need: Floats, *, lifted: bool
    ) -> None:
        self.shape = rate.shape
        cells = np.ones(rate.shape)
        cell = cells
        held = scale[:, None] * cells
        time = cells
        done = rate.astype(np.float64)
        level = np.full(len(rate), float(lifted))
        coefficients = np.ones(len(workers))
        units = [cells, coefficients, *np.ones((2, len(rate)))]
        unit = cells
        of_level = 1.0

        for _ in range(_SCALINGS):
            largest = np.max([cell, held, time, done], axis=0)
            column = np.sqrt(largest)
            of_held = held.max(axis=0)
            of_time = time.max(axis=1)
            most_done = done.max(axis=1)
            row = [np.sqrt(part) for part in (cell, of_held, of_time, np.maximum(most_done, level))]
            height = float(np.sqrt(level.max())) or 1.0
            cell = cell / row[0] / column
            held = held / row[1] / column
            level = level / row[3] / height
            time = time / row[2][:, None] / column
            done = done / row[3][:, None] / column
            unit = unit * column
            of_level = of_level * height
            units = [part * by for part, by in zip(units, row, strict=True)]

        self._cell = cell
        self._held = held
        self._time = time
        self._done = done
        self._level = level
        no_cells = 0 * cells.ravel()
        workers_left = workers / units[1]
        whole = 1 / units[2]
        needed = -need / units[3]
        self.most = np.concatenate([no_cells, workers_left, whole, needed])
        self.unit = np.append(unit.ravel(), of_level)
        sizes = [cells.size, len(workers), len(rate)]
        self._ends = np.cumsum(sizes)
        cells_cost = 0 * cells.ravel()
        level_cost = -float(lifted) / of_level
        self.cost = np.append(cells_cost, level_cost)

    def times(self, x: Floats) -> Floats:
        """G x."""
        shares = x[:-1].reshape(self.shape)
        of_cells = -self._cell
        of_workers = (self._held * shares).sum(axis=0)
        of_time = (self._time * shares).sum(axis=1)
        parts = ((of_cells * shares).ravel(), of_workers, of_time)
        level = self._level * x[-1]
        reached = (self._done * shares).sum(axis=1)
        return np.concatenate([*parts, level - reached])

    def back(self, prices: Floats) -> Floats:
        """The transpose of G times prices of the rows."""
        cell, workers, time, done = np.split(prices, self._ends)
        held = self._held * workers
        timed = self._time * time[:, None]
        reached = self._done * done[:, None]
        own = held + timed - reached
        of_cells = cell.reshape(self.shape)
        rest = own - self._cell * of_cells
        return np.append(rest.ravel(), self._level @ done)

    def solver(self, weights: Floats) -> Callable[[Floats, Floats], tuple[Floats, Floats]]:
        """Solves for x and prices: `back(prices)` is the first argument, `times(x) - prices /
        weights` the second.

        A job's own rows concern its own cells only; the workers of the types and the level are few
        columns of all.
        """
        cell, workers, time, done = np.split(weights, self._ends)
        squares = self._cell**2 * cell.reshape(self.shape)
        own = np.einsum("mj,jk->mjk", squares, np.eye(len(workers)))
        own += np.einsum("m,mj,mk->mjk", time, self._time, self._time)
        by_done = np.einsum("m,mj,mk->mjk", done, self._done, self._done)
        inverse = np.linalg.inv(own + by_done)
        by_workers = np.diag(1 / workers)
        by_held = np.einsum("mj,mjk,mk->jk", self._held, inverse, self._held)
        shared = by_workers + by_held

        def of_shares(right: Floats) -> Floats:
            straight = np.einsum("mjk,mk->mj", inverse, right)
            used = (self._held * straight).sum(axis=0)
            price = np.linalg.solve(shared, used)
            corrected = np.einsum("mjk,mk->mj", inverse, self._held * price)
            return np.asarray(straight - corrected)

        weighed_level = (done * self._level)[:, None]
        lift = -self._done * weighed_level
        by_level = of_shares(lift)
        level_squares = (done * self._level**2).sum()
        lifted_squares = (lift * by_level).sum()
        slope = float(level_squares - lifted_squares)

        def solve(right: Floats, rows: Floats) -> tuple[Floats, Floats]:
            right = right + self.back(weights * rows)
            of_cells = right[:-1].reshape(self.shape)
            shares = of_shares(of_cells)
            level = 0.0
            if slope > 0:
                level = (right[-1] - float((lift * shares).sum())) / slope
            x = np.append((shares - level * by_level).ravel(), level)
            return x, weights * (self.times(x) - rows)

        return solve


class _Embedded:
    """A point of a program and of its dual, as one self-dual program (Domahidi, Chu, Boyd 2013).

    Where many X are optimal, the published solver's start and steps decide where it ends: far from
    the center.
    """

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows
        start = rows.solver(np.ones(len(rows.most)))
        self._x, prices = start(0 * rows.cost, rows.most)
        outside = max(-_STEP, float(prices.max()))
        self._slack = 1 - prices + outside
        _, prices = start(-rows.cost, 0 * rows.most)
        inside = max(-_STEP, -float(prices.min()))
        self._price = 1 + prices + inside
        self._tau = 1.0
        self._kappa = 1.0

    def shares(self) -> Floats:
        scaled = self._x / self._tau / self._rows.unit
        return np.asarray(scaled[:-1].reshape(self._rows.shape))

    def is_solved(self) -> bool:
        dual, primal, _ = self._residuals()
        rows = self._rows
        gap = float(self._slack @ self._price)
        size = max(1.0, float(np.linalg.norm(rows.most)))
        primal_size = float(np.linalg.norm(primal))
        dual_size = np.linalg.norm(dual)
        farther = max(primal_size / size, float(dual_size))
        far = farther / self._tau
        value = rows.cost @ self._x
        relative = gap / max(-float(value), 1e-300)
        least_gap = min(gap, relative)
        return max(far, least_gap) < _SOLVED

    def _residuals(self) -> tuple[Floats, Floats, float]:
        rows = self._rows
        reached = rows.times(self._x)
        limit = rows.most * self._tau
        primal = self._slack + reached - limit
        priced = rows.back(self._price)
        cost_limit = rows.cost * self._tau
        dual = -priced - cost_limit
        cost = float(rows.cost @ self._x)
        worth = float(rows.most @ self._price)
        return (dual, primal, self._kappa + cost + worth)

    def advance(self) -> None:
        """One step: first straight ahead, to see how far that leads, then corrected to stay
        central.
        """
        most = self._rows.most
        cost = self._rows.cost
        tau = self._tau
        kappa = self._kappa
        dual, primal, gap = self._residuals()
        # In this scale slacks and prices are alike.
        root = np.sqrt(self._slack / self._price)
        alike = np.sqrt(self._slack * self._price)
        solve = self._rows.solver(self._price / self._slack)
        of_x, of_price = solve(-cost, most)
        unscaled_slope = kappa / tau - float(cost @ of_x)
        slope = unscaled_slope - float(most @ of_price)

        def change(
            left: float, push: Floats, product: float
        ) -> tuple[Floats, Floats, Floats, float, float]:
            """Of x, slacks, prices, tau and kappa, where a part of the residuals is `left` to be
            closed.
            """
            pushed = root * push - left * primal
            x, price = solve(left * dual, pushed)
            unpaid = left * gap - product / tau + float(cost @ x) + float(most @ price)
            by_tau = unpaid / slope
            scaled = root * (price + by_tau * of_price)
            step_x = x + by_tau * of_x
            step_slack = -push - scaled
            owed = product + kappa * by_tau
            return (step_x, step_slack, scaled, by_tau, -owed / tau)

        def length(slack: Floats, price: Floats, by_tau: float, by_kappa: float) -> float:
            least_slack = float((slack / alike).min())
            least_price = float((price / alike).min())
            most_back = max(-least_slack, -least_price, -by_tau / tau, -by_kappa / kappa)
            return min(1 / most_back if most_back > 0 else np.inf, _LONGEST)

        _, slack, price, by_tau, by_kappa = change(1.0, alike, kappa * tau)
        longest = length(slack, price, by_tau, by_kappa)
        pulled = max((1 - longest) ** 3, _MIN_PULL)
        pull = min(pulled, 1.0)
        products = self._slack @ self._price
        size = len(most) + 1
        mean = pull * (float(products) + kappa * tau) / size
        push = alike + (slack * price - mean) / alike
        product = kappa * tau + by_kappa * by_tau - mean
        x, slack, price, by_tau, by_kappa = change(1 - pull, push, product)
        step = _STEP * length(slack, price, by_tau, by_kappa)
        self._x = self._x + step * x
        self._tau = tau + step * by_tau
        self._kappa = kappa + step * by_kappa

        self._slack = self._slack + step * root * slack
        self._price = self._price + step * price / root


class UniformSpeeds:
    """A policy that believes all types to be as fast as one of them, or with `None` all jobs to be
    equally fast.

    Unlike `Agnostic` it divides the types among jobs, as if they differed.
    """

    def __init__(self, policy: Policy, reference: int | None) -> None:
        self._policy = policy
        self._reference = reference
        # By job: the time with a 1/n share so far, the believed pace of that, and the steps left
        # then.
        self._paces: dict[str, tuple[float, float, float]] = {}

    def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """The published policy, on what it believes."""
        jobs = problem.jobs
        believed = np.ones(jobs.throughputs.shape)
        if self._reference is not None:
            believed *= jobs.throughputs[:, [self._reference]]

        alike = replace(problem, jobs=replace(jobs, throughputs=believed))
        pace = (believed * isolated_shares(alike)).sum(axis=1).tolist()
        steps_left = jobs.steps.tolist()
        for name, now, left in zip(jobs.ids, pace, steps_left, strict=True):
            past, before, steps = self._paces.get(name, (0.0, now, left))
            seconds = past + (steps - left) / before if before else past
            self._paces[name] = (seconds, now, left)

        seconds_of_jobs = [self._paces[name][0] for name in jobs.ids]
        isolated = np.array(seconds_of_jobs)
        own_jobs = replace(alike.jobs, isolated_seconds=isolated)
        own_problem = replace(alike, jobs=own_jobs)
        shares = self._policy(own_problem).shares
        usable = np.where(jobs.throughputs > 0, shares, 0.0)
        return allocation(problem, usable, 0.0)


class LastTypeQueue:
    """The published queue that ignores throughputs: it draws a type, and then takes the last one in
    the alphabet that has free workers, although the job may need more of them than are free."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._type_of = dict[str, int]()

    def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """All of the time on the type that a job has."""
        ids = problem.jobs.ids
        free = problem.cluster.workers.copy()
        scales = problem.jobs.scale.tolist()
        scale = dict(zip(ids, scales, strict=True))
        rate = dict(zip(ids, problem.jobs.throughputs, strict=True))
        waiting = [name for name in ids if name not in self._type_of]

        for name in sorted(self._type_of, key=int):
            kind = self._type_of[name]
            if name in scale:
                free[kind] -= scale[name]
                continue
            del self._type_of[name]
            if waiting and scale[waiting[0]] <= free[kind] and rate[waiting[0]][kind] > 0:
                self._type_of[waiting[0]] = kind
                free[kind] -= scale[waiting.pop(0)]

        by_name = np.argsort(problem.cluster.types)
        there = [kind for kind in by_name.tolist() if free[kind] > 0]
        for name in waiting:
            room = [kind for kind in there if free[kind] >= scale[name]]
            if not room:
                break

            drawn = room[self._rng.randrange(len(room))]
            kind = there[-1]
            if rate[name][kind] > 0:
                self._type_of[name] = kind
                free[kind] -= scale[name]
                if free[kind] == 0:
                    there.remove(drawn)

        shares = np.zeros(problem.jobs.throughputs.shape)
        for m, name in enumerate(ids):
            if name in self._type_of:
                shares[m, self._type_of[name]] = 1.0

        return ClusterAllocation(shares, np.zeros(len(ids)), 0.0)

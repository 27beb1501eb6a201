"""Whole machines for several jobs under quotas that they share: the fairest division, solved as integer programs.

A job's share is the value of its machines, relative to the most that it could hold alone. Gavel's max-min fairness
makes the smallest share as large as possible; here, then also the second smallest, and so on. Equal jobs so get equal
shares, up to one machine. Among divisions that are as fair, the first job gets the largest share, then the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

import highspy
import numpy as np
from highspy import HighsModelStatus, HighsVarType

from bidbrain.arrays import Floats, Ints
from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.lp import SolverFailed

_MAX_NODES = (2_000, 20_000)
"""More only if nothing was found. Plans are made again by other processes, and must be the same: a limit of time would
depend on the computer."""
_OPTIONS: dict[str, float | bool] = {
    "mip_rel_gap": 2e-3,
    "mip_heuristic_effort": 0.0,
    "mip_detect_symmetry": False,
    # Programs are small: to begin again with fewer columns takes longer than to go on.
    "mip_allow_restart": False,
}
_FOUND = (HighsModelStatus.kOptimal, HighsModelStatus.kSolutionLimit)
_IMPOSSIBLE = (HighsModelStatus.kInfeasible, HighsModelStatus.kUnboundedOrInfeasible)


@dataclass(slots=True)
class IntegerProgram:
    """Columns with ranges, some of them whole numbers, and rows `lower <= sum of values x <= upper`."""

    _lower: list[float] = field(default_factory=list)
    _upper: list[float] = field(default_factory=list)
    _kinds: list[HighsVarType] = field(default_factory=list)
    _rows: list[tuple[Mapping[int, float], float, float]] = field(default_factory=list)

    def column(self, lower: float = 0.0, upper: float = inf, *, whole: bool = False) -> int:
        """Adds a column, and returns its number."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._kinds.append(HighsVarType.kInteger if whole else HighsVarType.kContinuous)
        return len(self._lower) - 1

    def row(self, values: Mapping[int, float], lower: float = -inf, upper: float = inf) -> None:
        """Adds a row; `values` are by column."""
        self._rows.append((values, lower, upper))

    def best(self, gain: Mapping[int, float], start: Floats | None = None) -> Floats | None:
        """The columns' values with the highest gain; None if no values satisfy all rows. The search begins with the
        values of `start`, which satisfy all rows.

        SolverFailed: the solver has found neither values nor that there are none.
        """
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.silent()
        for name, value in _OPTIONS.items():
            solver.setOptionValue(name, value)
        solver.passModel(self._model(gain))
        if start is not None:
            known = highspy.HighsSolution()
            known.col_value = start
            known.value_valid = True
            solver.setSolution(known)
        for nodes in _MAX_NODES:
            solver.setOptionValue("mip_max_nodes", nodes)
            solver.run()
            status, solution = solver.getModelStatus(), solver.getSolution()
            if status in _IMPOSSIBLE:
                return None
            if status in _FOUND and solution.value_valid:
                return np.array(solution.col_value)
        raise SolverFailed(f"no whole machines were found within the quotas: {solver.modelStatusToString(status)}")

    def _model(self, gain: Mapping[int, float]) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._lower), len(self._rows)
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = np.array([gain.get(column, 0.0) for column in range(len(self._lower))])
        model.col_lower_, model.col_upper_ = np.array(self._lower), np.array(self._upper)
        model.integrality_ = self._kinds
        model.row_lower_ = np.array([lower for _, lower, _ in self._rows])
        model.row_upper_ = np.array([upper for _, _, upper in self._rows])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(values) for values, _, _ in self._rows)])
        model.a_matrix_.index_ = np.array([column for values, _, _ in self._rows for column in values], dtype=np.int32)
        model.a_matrix_.value_ = np.array([value for values, _, _ in self._rows for value in values.values()])
        return model


_ROUNDING = 1e-6
_LARGEST = 1e9
"""The largest coefficient for the solver. It refuses larger ones, which only kinds have that no division could hold, or
where one machine does far more than is needed."""
_KEPT = 64
"""A plan divides the same quotas several times: in other orders of jobs, and again with forecasts."""
_MAX_EXACT = 6
"""For more jobs, only some sums of smallest shares are made as large as possible: of the smallest, of the two smallest,
of all, and then of all but the largest, which makes that one as small as possible."""


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """A job that asks for machines: the value of one machine of each kind, 0 where it cannot run; how many it holds at
    least and at most; and groups of kinds, such as those of a region: it uses kinds of one group only. `needs` are
    minimums that its machines reach together, such as the work per hour that a deadline takes: coefficients by kind,
    and the least value of their sum over the machines.
    """

    value: tuple[float, ...]
    least: int
    most: int
    groups: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[tuple[float, ...], float], ...] = ()


@lru_cache(_KEPT)
def fairest(claims: tuple[MachineClaim, ...], quotas: tuple[SharedQuota, ...]) -> Ints | None:
    """The machines of each kind (columns) for each job (rows); None if the quotas do not hold all at the same time."""
    division = _Division.of(claims, quotas)
    # The most that each job could hold if it had the quotas for itself.
    alone: dict[MachineClaim, float] = {}
    for claim in dict.fromkeys(claims):
        own = _Division.of([claim], quotas)
        most = own.program.best({column: claim.value[j] for j, column in own.counts[0].items()})
        value = 0.0 if most is None else float(own.machines(most)[0] @ np.array(claim.value))
        alone[claim] = value or 1.0
    shares = [
        {column: min(claim.value[j] / alone[claim], _LARGEST) for j, column in counts.items()}
        for claim, counts in zip(claims, division.counts, strict=True)
    ]
    latest: dict[MachineClaim, int] = {}
    for m, claim in enumerate(claims):
        if claim in latest:
            # The first of two equal jobs gets no less.
            behind = {column: -share for column, share in shares[m].items()}
            division.program.row(shares[latest[claim]] | behind, lower=0.0)
        latest[claim] = m
    best = division.program.best({})
    if best is None:
        return None
    # How many of the smallest shares each step raises together.
    jobs = len(claims)
    for count in range(1, jobs + 1) if jobs <= _MAX_EXACT else (1, 2, jobs, jobs - 1):
        best = division.raise_smallest(shares, count, best)
    # Far smaller than any share: of equally good divisions, the one with the fewest machines.
    gain = {column: -1e-6 for counts in division.counts for column in counts.values()}
    for rank, share in enumerate(shares):
        for column, value in share.items():
            gain[column] += value * 0.5**rank
    last = division.program.best(gain, best)
    machines = division.machines(best if last is None else last)
    machines.setflags(write=False)
    return machines


@lru_cache(_KEPT)
def possible(claims: tuple[MachineClaim, ...], quotas: tuple[SharedQuota, ...]) -> bool:
    """Whether the quotas hold the machines of all jobs at the same time."""
    return _Division.of(claims, quotas).program.best({}) is not None


@dataclass(frozen=True, slots=True)
class _Division:
    """The program of a division, and by job the column of each kind's number of machines."""

    program: IntegerProgram
    counts: list[dict[int, int]]
    kinds: int

    @classmethod
    def of(cls, claims: Sequence[MachineClaim], quotas: Sequence[SharedQuota]) -> "_Division":
        program = IntegerProgram()
        counts = [_columns_of(program, claim, _useful_kinds(claim, quotas)) for claim in claims]
        for quota in quotas:
            used = {column: quota.per_machine[j] for held in counts for j, column in held.items()}
            program.row(used, upper=quota.most + _ROUNDING)
        return cls(program, counts, len(claims[0].value))

    def raise_smallest(self, shares: Sequence[dict[int, float]], count: int, known: Floats) -> Floats:
        """Makes the sum of the `count` smallest shares as large as possible, and requires so much from then on. Returns
        the columns' values; `known` are those of a division that holds so far.

        With a level t, this sum is the largest count * t - sum(max(t - share, 0)).
        """
        level = self.program.column(lower=-inf)
        gain = {level: float(count)}
        reached = np.array([sum(value * known[column] for column, value in share.items()) for share in shares])
        reachable = np.sort(reached)[count - 1]
        start = np.concatenate([known, [reachable], np.maximum(reachable - reached, 0.0)])
        for share in shares:
            short = self.program.column()
            self.program.row({short: 1.0, level: -1.0} | share, lower=0.0)
            gain[short] = -1.0
        x = self.program.best(gain, start)
        if x is None:
            return start
        self.program.row(gain, lower=sum(value * x[column] for column, value in gain.items()) - _ROUNDING)
        return x

    def machines(self, x: Floats) -> Ints:
        """The machines by job and kind."""
        machines = np.zeros((len(self.counts), self.kinds), dtype=np.int64)
        for m, held in enumerate(self.counts):
            for j, column in held.items():
                machines[m, j] = round(x[column])
        return machines


def _useful_kinds(claim: MachineClaim, quotas: Sequence[SharedQuota]) -> list[int]:
    """The kinds than which no other one of their group is as good in all respects: value, needs, and use of quotas."""
    merits = {
        j: (
            claim.value[j],
            *(coefficients[j] for coefficients, _ in claim.needs),
            *(-quota.per_machine[j] for quota in quotas),
        )
        for group in claim.groups
        for j in group
        if claim.value[j] > 0
    }

    def beaten(i: int, group: Sequence[int]) -> bool:
        better = (j for j in group if j in merits and (merits[j], -j) > (merits[i], -i))
        return any(all(a >= b for a, b in zip(merits[j], merits[i], strict=True)) for j in better)

    return [i for group in claim.groups for i in group if i in merits and not beaten(i, group)]


def _columns_of(program: IntegerProgram, claim: MachineClaim, kinds: Sequence[int]) -> dict[int, int]:
    """Adds the columns and rows of one job."""
    held = {j: program.column(upper=float(claim.most), whole=True) for j in kinds}
    program.row(dict.fromkeys(held.values(), 1.0), lower=float(claim.least), upper=float(claim.most))
    chosen = {}
    for group in claim.groups if len(claim.groups) > 1 else ():
        used = {held[j]: 1.0 for j in group if j in held}
        chosen[program.column(upper=1.0, whole=True)] = 1.0
        program.row({**used, max(chosen): -float(claim.most)}, upper=0.0)
    program.row(chosen, upper=1.0)
    for coefficients, least in claim.needs:
        program.row({column: min(coefficients[j], _LARGEST) for j, column in held.items()}, lower=least)
    return held

"""Linear programs: an optimum, or an error that names what cannot hold.

A program maximizes a gain over columns within rows, and every kind of rows carries the words that
describe each of its rows, so that a contradiction can be told in the user's own terms: the rows
that give way when the total relative violation is least (an elastic program). One solver, HiGHS, is
called, from the basis of the last optimum where there is one. A status other than optimal never
passes for an answer: it is an error, after retries with other settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import highspy
import numpy as np
from highspy import HighsBasisStatus, HighsModelStatus

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import BidBrainError

INF = highspy.kHighsInf
BASIC, AT_LOWER, AT_UPPER = (
    HighsBasisStatus.kBasic,
    HighsBasisStatus.kLower,
    HighsBasisStatus.kUpper,
)
# By default the solver drops smaller entries than 1e-9; throughputs may spread over nine decades.
_SMALLEST_ENTRY = 1e-12
_TOLERANCE = 1e-9
_VIOLATION_TOLERANCE = 1e-7
_MIN_GAIN_TO_ENTER = 1e-8
_DUAL_SIMPLEX, _PRIMAL_SIMPLEX = 1, 4
_OPTIONS: dict[str, str | float | int] = {
    # The programs here are small or start from a basis: presolve costs more than it saves.
    "presolve": "off",
    "simplex_strategy": _PRIMAL_SIMPLEX,
    # Programs are already written in units that make their entries about 1.
    "simplex_scale_strategy": 0,
    "small_matrix_value": _SMALLEST_ENTRY,
    "primal_feasibility_tolerance": _TOLERANCE,
    "dual_feasibility_tolerance": _TOLERANCE,
}


# A basis from another program can be too ill-conditioned: then retry without it, and finally with
# the solver's defaults.
_RETRY_OPTIONS: tuple[tuple[str, str | float, str | float], ...] = (
    ("presolve", "off", "off"),
    ("presolve", "on", "off"),
    ("primal_feasibility_tolerance", 1e-7, _TOLERANCE),
)


class CannotHold(BidBrainError):
    """The constraints of a program contradict each other, or nothing bounds its objective."""


class SolverFailed(BidBrainError):
    """The solver found neither an optimum nor a proof that there is none."""


@dataclass(frozen=True, slots=True)
class ConstraintRows:
    """Constraints of one kind, `lower <= sum of values x <= upper` per row.

    `label.format(names[i])` describes row i in words.
    """

    label: str
    names: Sequence[object]
    rows: Ints
    columns: Ints
    values: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Maximize `gain x` over `lower <= x <= upper` under rows, which are numbered consecutively
    across kinds.
    """

    gain: Floats
    lower: Floats
    upper: Floats
    rows: tuple[ConstraintRows, ...]


@dataclass(frozen=True, slots=True)
class SimplexBasis:
    """The simplex basis of a solution: a solver status per column and per row. A later program may
    start from it.
    """

    columns: list[HighsBasisStatus]
    rows: list[HighsBasisStatus]


@dataclass(frozen=True, slots=True)
class LpSolution:
    """An optimal point, its value, and the gain from one more unit of each row's bound."""

    x: Floats
    value: float
    prices: Floats = field(repr=False)


def at_most(
    label: str, names: Sequence[object], rows: Ints, columns: Ints, values: Floats, upper: Floats
) -> ConstraintRows:
    no_least = np.full(len(upper), -INF)
    return ConstraintRows(label, names, rows, columns, values, no_least, upper)


def at_least(
    label: str, names: Sequence[object], rows: Ints, columns: Ints, values: Floats, lower: Floats
) -> ConstraintRows:
    no_most = np.full(len(lower), INF)
    return ConstraintRows(label, names, rows, columns, values, lower, no_most)


class Solver:
    """A program loaded into the solver. The program can be changed; the next solve starts from the
    last optimum.

    `dual` is for programs in which every column only costs, but rows are violated where all columns
    are 0. `brief` is for programs that are expected to be infeasible at times: this is reported at
    once, without an explanation.
    """

    def __init__(
        self,
        program: LinearProgram,
        start: SimplexBasis | None = None,
        *,
        dual: bool = False,
        brief: bool = False,
    ) -> None:
        self._brief = brief
        self._last: highspy.HighsBasis | None = None
        self._kinds = list(program.rows)
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self._highs.silent()
        for name, value in _OPTIONS.items():
            self._highs.setOptionValue(name, value)
        if dual:
            self._highs.setOptionValue("simplex_strategy", _DUAL_SIMPLEX)

        self._highs.passModel(_model(program))
        if start is not None:
            basis = highspy.HighsBasis()
            basis.col_status = start.columns
            basis.row_status = start.rows
            # The basis is from another program, so the solver may have to repair it.
            basis.valid = basis.alien = True
            self._highs.setBasis(basis)

    def optimum(self) -> LpSolution:
        self._highs.run()
        if self._brief and self._highs.getModelStatus() == HighsModelStatus.kInfeasible:
            if self._last is not None:
                # The program may change back: its last optimum is nearer than where the proof
                # ended.
                self._highs.setBasis(self._last)
            raise CannotHold("no values satisfy all constraints")

        for option, once, always in _RETRY_OPTIONS:
            if self._highs.getModelStatus() == HighsModelStatus.kOptimal:
                break
            self._highs.clearSolver()
            self._highs.setOptionValue(option, once)
            self._highs.run()
            self._highs.setOptionValue(option, always)

        status = self._highs.getModelStatus()
        if status != HighsModelStatus.kOptimal:
            raise self._reason(status)

        if self._brief:
            self._last = self._highs.getBasis()

        solution = self._highs.getSolution()
        values = np.array(solution.col_value)
        value = self._highs.getObjectiveValue()
        prices = np.array(solution.row_dual)
        return LpSolution(values, value, prices)

    def basis(self) -> SimplexBasis:
        basis = self._highs.getBasis()
        return SimplexBasis(basis.col_status, basis.row_status)

    def set_gain(self, gain: Floats) -> None:
        columns = np.arange(len(gain), dtype=np.int32)
        self._highs.changeColsCost(len(gain), columns, gain)

    def set_column(self, column: int, lower: float, upper: float = INF) -> None:
        self._highs.changeColBounds(column, lower, upper)

    def set_columns(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Replaces the ranges of several columns."""
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), lower, upper)

    def set_entry(self, row: int, column: int, value: float) -> None:
        self._highs.changeCoeff(row, column, value)

    def add_columns(self, gain: Floats, columns: Ints, rows: Ints, values: Floats) -> None:
        """Adds columns with values from 0 up, their entries in the order of columns (counted from
        0).
        """
        count = len(gain)
        places = np.searchsorted(columns, np.arange(count))
        starts = places.astype(np.int32)
        indices = rows.astype(np.int32)
        no_upper = np.full(count, INF)
        self._highs.addCols(
            count, gain, np.zeros(count), no_upper, len(rows), starts, indices, values
        )

    def add_rows(self, kind: ConstraintRows) -> None:
        """Adds rows after all others."""
        order = np.argsort(kind.rows, kind="stable")
        count = len(kind.upper)
        places = np.searchsorted(kind.rows[order], np.arange(count))
        starts = places.astype(np.int32)
        indices = kind.columns[order].astype(np.int32)
        self._highs.addRows(
            count, kind.lower, kind.upper, len(order), starts, indices, kind.values[order]
        )
        self._kinds.append(kind)

    def _reason(self, status: HighsModelStatus) -> BidBrainError:
        if status == HighsModelStatus.kUnbounded:
            return CannotHold(
                "no constraint bounds the objective: give every type a number of workers"
            )

        broken = self._broken()
        if broken:
            more = ""
            if len(broken) > 1:
                more = f" (nor {len(broken) - 1} more)"
            return CannotHold(f"cannot be met: {broken[0]}{more}")

        return SolverFailed(
            f"the solver ended with {str(status).rsplit('.k', 1)[-1]}: check the spread of the "
            "input"
        )

    def _broken(self) -> list[str]:
        """Labels of the rows that give way when the total relative violation is minimized."""
        model = self._highs.getLp()
        lower = np.array(model.row_lower_)
        upper = np.array(model.row_upper_)
        finite_bound = np.where(np.isfinite(lower), lower, upper)
        bound = np.abs(finite_bound)
        counts = np.isfinite(bound) & (bound > _VIOLATION_TOLERANCE)
        unit = np.where(counts, bound, 1.0)

        # Bounds of columns stay; a row's violation is penalized relative to its bound.
        self._highs.feasibilityRelaxation(-1.0, -1.0, 1.0, None, None, 1 / unit)
        activity = np.array(self._highs.getSolution().row_value)
        excess = np.maximum(lower - activity, activity - upper)
        broken = excess > _VIOLATION_TOLERANCE * unit
        places = [(kind, i) for kind in self._kinds for i in range(len(kind.upper))]
        given_way = [places[row] for row in np.flatnonzero(broken)]

        return [kind.label.format(kind.names[i]) for kind, i in given_way]


class GrowingSolver:
    """Column generation for programs with far more columns than an optimum uses: beyond a core,
    columns enter when prices show that they pay.

    The optimum is that of the whole program. Columns outside the core have the range from 0 to
    infinity.
    """

    def __init__(self, program: LinearProgram, core: Ints) -> None:
        self._gain = program.gain
        sizes = (len(kind.upper) for kind in program.rows)
        offsets = np.cumsum([0, *sizes])
        rows_of_kinds = [
            kind.rows + at for kind, at in zip(program.rows, offsets[:-1], strict=True)
        ]
        row = np.concatenate(rows_of_kinds)
        column = np.concatenate([kind.columns for kind in program.rows])
        order = np.argsort(column, kind="stable")
        self._row = row[order]
        self._column = column[order]
        values = [kind.values for kind in program.rows]
        all_values = np.concatenate(values)
        self._value = all_values[order]
        every_column = np.arange(len(program.gain) + 1)
        self._starts = np.searchsorted(self._column, every_column)

        # Position of each column of the whole program in the solver, or -1.
        self._place = np.full(len(program.gain), -1)
        self._place[core] = np.arange(len(core))
        self._inside = core
        kinds = []

        for kind in program.rows:
            kept = self._place[kind.columns] >= 0
            columns = self._place[kind.columns[kept]]
            limited = replace(kind, rows=kind.rows[kept], columns=columns, values=kind.values[kept])
            kinds.append(limited)

        within = LinearProgram(
            program.gain[core], program.lower[core], program.upper[core], tuple(kinds)
        )
        self._solver = Solver(within)

    def set_gain(self, gain: Floats) -> None:
        """Replaces the objective, over all columns."""
        self._gain = gain
        self._solver.set_gain(gain[self._inside])

    def set_column(self, column: int, lower: float, upper: float = INF) -> None:
        """Replaces the range of a column of the core."""
        self._solver.set_column(int(self._place[column]), lower, upper)

    def set_entry(self, row: int, column: int, value: float) -> None:
        """Replaces a coefficient of a column of the core."""
        self._solver.set_entry(row, int(self._place[column]), value)

    def optimum(self) -> LpSolution:
        while True:
            solution = self._solver.optimum()
            prices = solution.prices[self._row]
            losses = self._value * prices
            lost = np.bincount(self._column, losses, len(self._gain))
            worth = np.where(self._place < 0, self._gain - lost, 0.0)
            wanted = np.flatnonzero(worth > _MIN_GAIN_TO_ENTER)
            if not len(wanted):
                x = np.zeros(len(self._gain))
                x[self._inside] = solution.x
                return LpSolution(x, solution.value, solution.prices)

            # Only the best few: most others stop paying once those have entered.
            most = len(solution.prices)
            entering = wanted
            if len(wanted) > most:
                entering = wanted[np.argpartition(-worth[wanted], most)[:most]]

            starts = self._starts[entering]
            lengths = self._starts[entering + 1] - starts
            number = np.repeat(np.arange(len(entering)), lengths)
            before = np.cumsum(lengths) - lengths
            entries = np.arange(lengths.sum()) - np.repeat(before, lengths)
            entry = entries + starts[number]
            gain = self._gain[entering]
            self._solver.add_columns(gain, number, self._row[entry], self._value[entry])

            new_places = np.arange(len(entering))
            self._place[entering] = len(self._inside) + new_places
            self._inside = np.concatenate([self._inside, entering])


def _model(program: LinearProgram) -> highspy.HighsLp:
    kinds = program.rows
    sizes = (len(kind.upper) for kind in kinds)
    offsets = np.cumsum([0, *sizes])
    rows_of_kinds = [kind.rows + offset for kind, offset in zip(kinds, offsets[:-1], strict=True)]
    rows = np.concatenate(rows_of_kinds)
    order = np.argsort(rows, kind="stable")
    model = highspy.HighsLp()
    model.num_col_ = len(program.gain)
    model.num_row_ = int(offsets[-1])
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = program.gain
    model.col_lower_ = program.lower
    model.col_upper_ = program.upper
    model.row_lower_ = np.concatenate([kind.lower for kind in kinds])
    model.row_upper_ = np.concatenate([kind.upper for kind in kinds])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    row_places = np.arange(model.num_row_ + 1)
    model.a_matrix_.start_ = np.searchsorted(rows[order], row_places)
    columns_of_kinds = [kind.columns for kind in kinds]
    all_columns = np.concatenate(columns_of_kinds)
    model.a_matrix_.index_ = all_columns[order]
    values_of_kinds = [kind.values for kind in kinds]
    all_values = np.concatenate(values_of_kinds)
    model.a_matrix_.value_ = all_values[order]

    return model

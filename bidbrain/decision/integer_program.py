"""The interface to the solver of integer programs, which stops after a fixed number of nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import highspy
import numpy as np
from highspy import HighsModelStatus, HighsVarType

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.lp import SolverFailed

_MOST_NODES = (2_000, 20_000)
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

    def best(self, gain: Mapping[int, float], start: FloatArray | None = None) -> FloatArray | None:
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
        for nodes in _MOST_NODES:
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

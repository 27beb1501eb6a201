"""Keeps the max-min program from call to call, because the next problem is usually similar."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.lp import AT_LOWER, BASIC, INF, SimplexBasis, Solver, SolverFailed
from bidbrain.gavel.policies.interior import EXACT, CenterProgram, center, with_free_workers
from bidbrain.gavel.policies.level_program import KEPT, Levels

# From this number of groups on, an interior point takes less time than changing the last program.
_CENTER_FROM = 300


class KeptLevels:
    """The program of the last call. Between calls mostly the number of jobs per group changes."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._at: tuple[Levels, Solver] | None = None

    def lift(self, traits: FloatArray, workers: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The largest z, each job's shares and price; a row of traits has progress on each type, need and scale."""
        if not len(traits):
            return 0.0, np.zeros((0, len(workers))), np.zeros(0)
        width, content = traits.shape[1] * traits.itemsize, np.ascontiguousarray(traits).tobytes()
        keys = [content[i : i + width] for i in range(0, len(content), width)]
        if not traits[:, :-2].any():
            return 0.0, np.zeros((len(traits), len(workers))), np.zeros(len(traits))
        if len(distinct := dict.fromkeys(keys)) >= _CENTER_FROM:
            with suppress(SolverFailed):
                return self._centered(workers, keys, {key: g for g, key in enumerate(distinct)})
        levels, solver = self._update(keys, workers)
        solver.set_gain(levels.gain())
        most = INF if levels.lifted().any() else 0.0
        solver.set_column(levels.z, 0.0, most)
        first = solver.optimum()
        z = first.value
        solver.set_gain(levels.leftover_gain())
        solver.set_column(levels.z, z * KEPT, most)
        shares = solver.optimum().x[: levels.z].reshape(-1, len(workers))
        groups = np.array([self._numbers[key] for key in keys])
        # A group's row is one constraint; each job gets its part of the row's price.
        prices = np.abs(first.prices[: len(levels.need)]) / np.maximum(levels.count, 1.0)
        return z, np.clip(shares[groups], 0.0, 1.0), prices[groups]

    def _centered(
        self, workers: FloatArray, keys: list[bytes], numbers: dict[bytes, int]
    ) -> tuple[float, FloatArray, FloatArray]:
        groups = np.array([numbers[key] for key in keys])
        count = np.bincount(groups).astype(np.float64)
        traits = np.frombuffer(b"".join(numbers)).reshape(len(numbers), -1)
        progress, need, held = traits[:, :-2], traits[:, -2], traits[:, -1] * count
        if not need.any():
            need = progress.max(axis=1)
        middle = center(CenterProgram(progress, progress > 0, need, held, workers), EXACT)
        z = middle.z if traits[:, -2].any() else 0.0
        shares = with_free_workers(middle.shares, progress, held, workers)
        return z, shares[groups], (middle.prices / count)[groups]

    def _update(self, keys: list[bytes], workers: FloatArray) -> tuple[Levels, Solver]:
        if self._at is None or not np.array_equal(workers, self._at[0].workers):
            self._numbers, self._at = {}, None
        if self._at is None or any(key not in self._numbers for key in keys):
            self._at = self._rebuild(keys, workers)
        else:
            self._at = _recount(*self._at, self._counts(keys))
        return self._at

    def _counts(self, keys: list[bytes]) -> FloatArray:
        numbers = [self._numbers[key] for key in keys]
        return np.bincount(numbers, minlength=len(self._numbers)).astype(np.float64)

    def _rebuild(self, keys: list[bytes], workers: FloatArray) -> tuple[Levels, Solver]:
        """A program with the new groups, started from the last basis.

        Groups without jobs stay, because similar jobs tend to return, as long as they are the minority.
        """
        old, now = self._numbers, dict.fromkeys(keys)
        gone = sum(key not in now for key in old)
        stay = [key for key in old if key in now or 2 * gone <= len(old)]
        order = [*stay, *(key for key in now if key not in old)]
        self._numbers = {key: g for g, key in enumerate(order)}
        traits = np.frombuffer(b"".join(order)).reshape(len(order), -1)
        levels = Levels(traits[:, :-2], traits[:, -2], traits[:, -1], self._counts(keys), workers)
        start = None if self._at is None else _carried(self._at, [old[key] for key in stay], levels)
        return levels, Solver(levels.program(), start)


def _carried(at: tuple[Levels, Solver], stay: list[int], levels: Levels) -> SimplexBasis:
    """The last basis, restricted to the groups that stay."""
    basis, (old, types) = at[1].basis(), at[0].progress.shape
    new = len(levels.need) - len(stay)
    columns = [status for g in stay for status in basis.columns[g * types : (g + 1) * types]]
    level, time = [basis.rows[g] for g in stay], [basis.rows[old + g] for g in stay]
    return SimplexBasis(
        [*columns, *[AT_LOWER] * (new * types), basis.columns[-1]],
        [*level, *[BASIC] * new, *time, *[BASIC] * new, *basis.rows[2 * old :]],
    )


def _recount(levels: Levels, solver: Solver, count: FloatArray) -> tuple[Levels, Solver]:
    """Changes the number of jobs of each group in the loaded program."""
    changed = replace(levels, count=count)
    groups, types = levels.progress.shape
    lifted, held = changed.lifted(), changed.held()
    for g in np.flatnonzero(count != levels.count).tolist():
        solver.set_lower(g, 0.0 if lifted[g] else -INF)
        for j in range(types):
            solver.set_entry(2 * groups + j, g * types + j, float(held[g]))
    return changed, solver

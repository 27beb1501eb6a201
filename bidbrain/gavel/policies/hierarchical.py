"""`hierarchical`: weighted fairness over entities, fairness or FIFO within, by water filling (section 5.4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.lp import INF, ConstraintRows, FloatArray, GrowingSolver, IntArray, Program, at_least
from bidbrain.gavel.policies.base import Warm, allocation
from bidbrain.gavel.policies.paired import progress_rows
from bidbrain.gavel.problem import ENTITY_POLICIES, AllocationProblem, BadProblem, ClusterAllocation, Entity
from bidbrain.gavel.shares import BoolArray, Shares, equal_throughput

# Share of a rise that a job's row must be charged for the job to be a bottleneck; less is rounding.
_BINDING = 1e-9
# Fraction of a level that the next rise keeps, so that solver tolerance does not make it infeasible.
_KEPT, _KEPT_STUCK = 1 - 1e-9, 1 - 1e-7


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Raises all jobs in proportion to their weights until some cannot rise further, then the others, and so on.

    A bottleneck is recognized by its row's price: a positive price means that the row is tight in every optimum, so
    that the job cannot rise unless another falls. (The paper finds such jobs with a mixed-integer program. One that a
    degenerate optimum leaves without a price shows when the next rise is zero.) An entity's weight goes to those of its
    jobs that can rise: by their weights, or all of it to the earliest. Jobs without an entity belong to one more, of
    weight 1; without any entities this is water filling by the jobs' own weights.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the level of the first rise, which is what max-min fairness maximizes."""
        columns, equal = Shares.of(problem), equal_throughput(problem)
        jobs = np.flatnonzero(equal > 0)
        if not len(jobs):
            return allocation(problem, columns.matrix(np.zeros(columns.count)), 0.0)
        unit = equal[jobs] / columns.most()[jobs] / problem.jobs.scale[jobs]
        queues = _queues(problem, jobs, unit)
        water = _Water(columns, jobs, queues)
        rises: list[float] = []
        while any(len(queue.rising()) for queue in queues):
            rises.append(water.rise())
        return allocation(problem, columns.matrix(water.x), rises[0])


@dataclass(slots=True)
class _Queue:
    """An entity's jobs, as rows of the program by arrival: each job's progress per unit of level, and whether it can
    rise.

    All rising jobs share one level: that of the entity, or of its earliest job.
    """

    entity: Entity
    rows: IntArray
    weight: FloatArray
    need: FloatArray
    open: BoolArray
    level: float = 0.0

    def rising(self) -> IntArray:
        """Positions in the queue of the jobs that rise now."""
        places = np.flatnonzero(self.open)
        return places[:1] if self.entity.policy == "fifo" else places

    def rate(self) -> float:
        """How fast the level rises: the entity's weight is divided among the rising jobs by their weights."""
        rising = self.rising()
        return self.entity.weight / float(self.weight[rising].sum()) if len(rising) else 0.0


def _queues(problem: AllocationProblem, jobs: IntArray, unit: FloatArray) -> list[_Queue]:
    known = {entity.name: entity for entity in problem.entities}
    members: dict[str | None, list[int]] = {}
    for row, m in enumerate(jobs.tolist()):
        members.setdefault(problem.jobs.entity[m], []).append(row)
    queues = []
    for name, rows in members.items():
        entity = known.get(name) if name is not None else Entity("")
        if entity is None or entity.policy not in ENTITY_POLICIES:
            fault = "is not among the entities" if entity is None else f"has policy {entity.policy!r}"
            raise BadProblem(f"entity {name!r} {fault}: give it a weight and one of {', '.join(ENTITY_POLICIES)}")
        ordered = np.array(rows)[np.argsort(problem.jobs.arrival[jobs[rows]], kind="stable")]
        weight = problem.jobs.weight[jobs[ordered]]
        queues.append(_Queue(entity, ordered, weight, weight * unit[ordered], np.ones(len(rows), dtype=bool)))
    if not problem.entities:
        # Then a unit of level is a unit of every job's own weight.
        queues[0].entity = Entity("", weight=float(queues[0].weight.sum()))
    return queues


class _Water:
    """The program of the next rise: columns are X, the level of each entity, and z, the length of the rise.

    Rows are the jobs' progress (its entity's level for a rising job, its previous level for a stuck one), the limits,
    and `level of an entity - rate z >= its level before`.
    """

    def __init__(self, columns: Shares, jobs: IntArray, queues: list[_Queue]) -> None:
        self.x = np.zeros(0)
        self._queues, self._level = queues, columns.count
        self._z = columns.count + len(queues)
        need, level = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=np.int64)
        for e, queue in enumerate(queues):
            level[queue.rows] = self._level + e
            leading = queue.rising()
            need[queue.rows[leading]] = queue.need[leading]
        rows = (progress_rows(columns, columns.most(), jobs, need, level), *columns.limits())
        self._first = sum(len(kind.upper) for kind in rows)
        gain = np.zeros(self._z + 1)
        gain[-1] = 1.0
        program = Program(gain, np.zeros(len(gain)), np.full(len(gain), INF), (*rows, self._level_rows()))
        self._solver = GrowingSolver(program, np.append(np.arange(columns.alone), np.arange(self._level, self._z + 1)))

    def _level_rows(self) -> ConstraintRows:
        entities = np.arange(len(self._queues))
        columns = np.concatenate([self._level + entities, np.full(len(entities), self._z)])
        values = np.concatenate([np.ones(len(entities)), np.full(len(entities), -1.0)])
        names = [queue.entity.name for queue in self._queues]
        return at_least(
            lambda e: f"entity {names[e]!r}: its level",
            np.concatenate([entities, entities]),
            columns,
            values,
            np.zeros(len(entities)),
        )

    def rise(self) -> float:
        """Lifts all rising jobs until some cannot rise further; those become stuck."""
        for e, queue in enumerate(self._queues):
            self._solver.set_entry(self._first + e, self._z, -queue.rate())
            self._solver.set_lower(self._first + e, queue.level * _KEPT)
        found = self._solver.optimum()
        self.x = found.x
        charges = [np.abs(found.prices[queue.rows]) * queue.need * queue.rate() for queue in self._queues]
        least = min(
            _BINDING,
            max(
                float(charge[queue.rising()].max(initial=0.0))
                for charge, queue in zip(charges, self._queues, strict=True)
            ),
        )
        for e, (queue, charge) in enumerate(zip(self._queues, charges, strict=True)):
            queue.level += queue.rate() * found.value
            rising = queue.rising()
            self._stick(e, rising[charge[rising] >= least])
        return found.value

    def _stick(self, e: int, places: IntArray) -> None:
        """Fixes these jobs at their level; with FIFO the next in the queue starts from zero."""
        queue, column = self._queues[e], self._level + e
        for place in places.tolist():
            row = int(queue.rows[place])
            self._solver.set_entry(row, column, 0.0)
            self._solver.set_lower(row, float(queue.need[place]) * queue.level * _KEPT_STUCK)
            queue.open[place] = False
        if len(places) and queue.entity.policy == "fifo":
            queue.level = 0.0
            for place in queue.rising().tolist():
                self._solver.set_entry(int(queue.rows[place]), column, -float(queue.need[place]))

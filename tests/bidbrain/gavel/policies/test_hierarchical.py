"""Water filling over entities: by hand, the published example, and against an independent
lexicographic optimum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.arrays import Floats
from bidbrain.gavel.policies.fairness import max_min_fairness_policy
from bidbrain.gavel.policies.hierarchical import hierarchical_policy
from bidbrain.gavel.problem import AllocationProblem, BadProblem, Entity
from tests.bidbrain.gavel.dense import Dense, equal_share
from tests.bidbrain.gavel.problems import (
    assert_valid,
    of_entities,
    problem,
    random_problem,
    with_pairs,
)


def test_the_published_water_filling() -> None:
    asked = problem([[1]] * 4, [4], weight=[3, 1, 1, 1])
    found = hierarchical_policy(asked)
    assert found.objective == pytest.approx(1 / 3)
    assert found.shares.ravel() == pytest.approx(np.ones(4), abs=1e-6)


def test_entities_share_by_weight_and_jobs_within_by_theirs() -> None:
    asked = of_entities(
        problem([[1]] * 4, [1], weight=[1, 3, 1, 1]), "research", "research", "product", "product"
    )
    entities = (Entity("research", 1.0), Entity("product", 3.0))
    found = hierarchical_policy(replace(asked, entities=entities))
    assert found.shares.ravel() == pytest.approx([0.25 / 4, 0.75 / 4, 0.375, 0.375], abs=1e-6)


def test_a_fifo_entity_serves_its_first_job_and_passes_on_the_rest() -> None:
    """Two workers per entity: the first in the queue gets one whole worker, the second the rest of
    the entity's share."""
    asked = of_entities(
        problem([[1]] * 5, [3], arrival=[2, 0, 1, 0, 0]), "queue", "queue", "queue", "fair", "fair"
    )
    entities = (Entity("queue", 1.0, "fifo"), Entity("fair", 1.0))
    found = hierarchical_policy(replace(asked, entities=entities))
    assert found.shares.ravel() == pytest.approx([0, 1, 0.5, 0.75, 0.75], abs=1e-6)


def test_unused_share_of_an_entity_goes_to_the_others() -> None:
    asked = of_entities(problem([[1, 0], [1, 1], [1, 1]], [1, 2]), "a", "b", "b")
    found = hierarchical_policy(replace(asked, entities=(Entity("a", 5.0), Entity("b", 1.0))))
    assert found.shares.sum() == pytest.approx(3.0, abs=1e-6)


def lexicographic(asked: AllocationProblem, weight: Floats) -> Floats:
    """Weighted lexicographic max-min of scale throughput / equal, by fixing in turn the jobs that
    cannot have more.

    One program per job decides whether it can have more.
    """
    dense = Dense(asked, extra=1)
    unit = weight * equal_share(asked) / asked.jobs.scale
    jobs = [int(m) for m in np.flatnonzero(unit > 0)]
    fixed: dict[int, float] = {}
    while len(fixed) < len(jobs):
        level = dense.maximum(
            np.append(np.zeros(dense.size), 1.0), *_rows(dense, unit, jobs, fixed, None)
        )
        assert level is not None
        floors = _rows(dense, unit, jobs, fixed, level)
        stuck = []
        for m in (m for m in jobs if m not in fixed):
            most = dense.maximum(np.append(dense.throughput[m], 0.0), *floors)
            assert most is not None
            if most <= level * unit[m] * (1 + 1e-6):
                stuck.append(m)
        assert stuck
        fixed |= dict.fromkeys(stuck, level)
    return np.array([fixed.get(m, 0.0) * unit[m] for m in range(len(unit))])


def _rows(
    dense: Dense, unit: Floats, jobs: list[int], fixed: dict[int, float], level: float | None
) -> tuple[Floats, Floats]:
    """One row per job: its fixed level, or the common level, which is a variable if it is not
    given.
    """
    rows, bounds = [], []
    for m in jobs:
        best = dense.throughput[m].max()
        known = fixed.get(m, level)
        rows.append(
            np.append(-dense.throughput[m] / best, unit[m] / best if known is None else 0.0)
        )
        bounds.append(0.0 if known is None else -known * unit[m] / best * (1 - 1e-9))
    return np.array(rows), np.array(bounds)


@pytest.mark.parametrize("seed", range(50))
def test_water_filling_is_the_lexicographic_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng, spread=1.5, most_jobs=7)
    if seed % 4 == 0:
        asked = with_pairs(asked, rng)
    found = hierarchical_policy(asked)
    assert_valid(asked, found)
    runs = equal_share(asked) > 0
    expected = lexicographic(asked, asked.jobs.weight)
    assert found.effective_throughput[runs] == pytest.approx(expected[runs].tolist(), rel=1e-4)
    if asked.pairs is None or runs.all():
        assert found.objective == pytest.approx(max_min_fairness_policy(asked).objective, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_many_copies_of_jobs_and_workers_change_no_level(seed: int) -> None:
    """Enough jobs that programs are solved for the undecided ones."""
    asked = random_problem(np.random.default_rng(seed), spread=1.5, most_jobs=7)
    asked = replace(asked, jobs=replace(asked.jobs, scale=np.ones_like(asked.jobs.scale)))
    copies = 2 + 130 // len(asked.jobs.ids)
    columns = {
        name: np.tile(getattr(asked.jobs, name), copies)
        for name in ("weight", "steps", "elapsed_seconds", "slo_seconds", "arrival")
    }
    many = problem(
        np.tile(asked.jobs.throughputs, (copies, 1)), asked.cluster.workers * copies, **columns
    )
    found = hierarchical_policy(many)
    assert_valid(many, found)
    runs = np.tile(equal_share(asked) > 0, copies)
    expected = np.tile(lexicographic(asked, asked.jobs.weight), copies)
    assert found.effective_throughput[runs] == pytest.approx(expected[runs].tolist(), rel=1e-4)


@pytest.mark.parametrize("seed", range(30))
def test_an_entity_of_jobs_without_competition_within_is_like_a_weight(seed: int) -> None:
    """One job per entity: then the entity's weight is the job's."""
    rng = np.random.default_rng(100 + seed)
    asked = random_problem(rng, spread=1.5)
    names = [f"e{m}" for m in range(len(asked.jobs.ids))]
    entities = tuple(
        Entity(name, float(w)) for name, w in zip(names, asked.jobs.weight, strict=True)
    )
    apart = hierarchical_policy(replace(of_entities(asked, *names), entities=entities))
    together = hierarchical_policy(asked)
    assert apart.effective_throughput == pytest.approx(
        together.effective_throughput.tolist(), rel=1e-5, abs=1e-9
    )


def test_unknown_entities_are_refused() -> None:
    with pytest.raises(BadProblem, match="entity 'x' is not among the entities"):
        hierarchical_policy(of_entities(problem([[1]], [1]), "x"))
    with pytest.raises(BadProblem, match="entity 'x' has policy 'lottery'"):
        hierarchical_policy(
            replace(of_entities(problem([[1]], [1]), "x"), entities=(Entity("x", 1.0, "lottery"),))
        )

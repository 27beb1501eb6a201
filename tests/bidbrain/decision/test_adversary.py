"""A sample of the adversarial jobs; `python -m tests.bidbrain.decision.adversary` plays 15,000."""

from __future__ import annotations

from bidbrain.replay.job import run_job
from bidbrain.strategies.standard import AlwaysOnDemand
from tests.bidbrain.decision.adversary import (
    case_of,
    cases,
    late_without_guard,
    missed,
    single_pool,
)


def test_no_job_on_one_machine_misses_a_deadline_that_on_demand_could_meet() -> None:
    played, late = single_pool(120)
    assert played >= 120
    assert late == 0


def test_no_job_on_several_machines_misses_a_deadline_that_on_demand_could_meet() -> None:
    drawn = list(cases(90))
    assert [case.name for case in drawn if missed(case)] == []
    assert {case.decider.limits.together for case in drawn} == {True, False}
    # Left to their strategies, many jobs would have been late; on demand from the start, none.
    assert sum(late_without_guard(case) for case in drawn) > 20
    for case in drawn[:20]:
        assert case.decider.deadline is not None
        run = run_job(
            case.job, AlwaysOnDemand(), case.market, case.decider.overheads, case.recovery
        )
        assert run.end is not None
        assert run.end <= case.decider.deadline


def test_the_granted_part_of_an_order_costs_no_deadline() -> None:
    """A gang on demand kept the five nodes that were granted of ten, and lost its slack to their
    evictions.
    """
    assert not missed(case_of(1395, 77))

"""How much of each shard has counted, and when a clock waits for a shard because of it."""

from __future__ import annotations

from agileml.core.deciding import Decisions, ShardShares
from agileml.policies.dbw import FixedWait
from agileml.protocol.messages import Contributed
from agileml.work import Accepted, WorkPlan

PLAN = WorkPlan((2, 2, 2, 2), 0, 1)
"""Four shards of two chunks."""

WITHOUT_3 = ((0, 0, 2), (1, 0, 2), (2, 0, 2))


def test_a_part_of_a_shard_counts_as_that_part() -> None:
    shares = ShardShares(PLAN.rotating())
    shares.add(Accepted(1, ((0, 0, 2), (1, 0, 1))))
    whole, half = (shares.plan.shard_at(place, 1) for place in (0, 1))
    assert [shares.counted[shard] for shard in (whole, half)] == [1.0, 0.5]
    assert sum(shares.counted) == 1.5
    assert shares.extremes() == (0.0, 1.0 / 0.375)


def test_no_clock_is_decided_without_a_shard_that_would_be_out_of_bounds() -> None:
    """Without rotation shard 3 is always the late one."""
    shares, waited = ShardShares(PLAN), []
    for clock in range(1, 401):
        owes = shares.owes([3], clock)
        waited.append(owes)
        assert not shares.add(Accepted(clock, PLAN.accept_all(clock).covers if owes else WITHOUT_3))
    assert not any(waited[:10])
    assert shares.extremes()[0] > 0.79
    assert not shares.owes([0, 1, 2], 401)


def test_a_shard_that_counts_too_often_is_named_once() -> None:
    """The others count in seven of twelve clocks: often enough that no clock waits for them."""
    shares, warnings = ShardShares(PLAN), list[str]()
    for clock in range(1, 400):
        late = [place for place in (1, 2, 3) if (clock + 4 * place) % 12 >= 7]
        assert not shares.owes(late, clock)
        covers = tuple((place, 0, 2) for place in range(4) if place not in late)
        warnings.append(shares.add(Accepted(clock, covers)))
    assert [warning[:36] for warning in warnings if warning] == [
        "warning: shard 0 has counted 1.46 ti"
    ]


def test_a_decision_waits_for_the_worker_of_a_shard_that_is_owed() -> None:
    decisions, workers = Decisions(PLAN, FixedWait(1)), ["t0", "t1", "t2", "t3"]
    decisions.roll_back()
    late = decisions.plan.shard_at(3, 1)
    decisions.shares.counted = [50.0] * 4
    decisions.shares.counted[late] = 10.0
    decisions.next(0, workers, 0.0)
    decisions.add_contribution(Contributed("t0", 1, 1, WITHOUT_3))
    assert decisions.next(0, workers, 1.0) is None
    decisions.add_contribution(Contributed("t3", 1, 1, ((3, 0, 2),)))
    decided = decisions.next(0, workers, 3.0)
    assert decided is not None
    assert (decided.waited_for, decided.accepted.covers) == (4, PLAN.accept_all(1).covers)


def test_a_restarted_controller_knows_what_has_counted() -> None:
    decisions = Decisions(PLAN, FixedWait(1))
    decisions.restore([[1, 3, WITHOUT_3], [2, 4, PLAN.accept_all(2).covers]])
    assert sorted(decisions.shares.counted) == [1.0, 2.0, 2.0, 2.0]

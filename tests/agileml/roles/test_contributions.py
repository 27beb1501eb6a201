"""What still counts of a worker's work after a rollback, against brute force."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

from agileml.protocol.actions import Chunk, Compute, Send
from agileml.protocol.messages import (
    WorkDone,
)
from agileml.roles.contributions import Contribution, Position, reusable
from agileml.work import Cover, WorkPlan
from tests.agileml.roles.test_worker import Harness, begun, pushes, recover, snapshot, tasks


def chunks_of(one: Contribution) -> set[tuple[int, int, int]]:
    return {
        (shard, one.clock, chunk)
        for shard, first, last in one.covers
        for chunk in range(first, last)
    }


def brute_force(plan: WorkPlan, kept: list[Contribution], mine: set[int], clock: int) -> set[int]:
    """The largest set of contributions in which every shard is mine and without a gap.

    Two such sets together are one, so that there is a largest.
    """
    best: set[int] = set()
    later = [number for number, one in enumerate(kept) if one.clock > clock]
    for size in range(len(later) + 1):
        for chosen in itertools.combinations(later, size):
            chunks = set().union(*(chunks_of(kept[number]) for number in chosen))
            if all(
                shard in mine and _whole(plan, chunks, shard, clock)
                for shard in {s for s, _, _ in chunks}
            ):
                best |= set(chosen)
    return best


def _whole(plan: WorkPlan, chunks: set[tuple[int, int, int]], shard: int, clock: int) -> bool:
    """Whether the chunks of a shard are consecutive, starting right after a version."""
    line = [
        (shard, at, chunk)
        for at in range(clock + 1, clock + 6)
        for chunk in range(plan.chunks(shard, at))
    ]
    have = sum(one in chunks for one in line)
    return set(line[:have]) == {one for one in chunks if one[0] == shard}


@st.composite
def histories(draw: st.DrawFn) -> tuple[WorkPlan, list[Contribution]]:
    """Sequences of chunks, divided into contributions by clock; some contributions are missing."""
    plan = WorkPlan((2, 4, 3), 0, 1)
    done = list[Contribution]()
    for clock in range(1, 4):
        pieces = list[Cover]()
        for shard in range(3):
            count = plan.chunks(shard, clock)
            low, high = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
            pieces += [(shard, 0, low), (shard, low, high)]
        pieces = [cover for cover in pieces if cover[1] < cover[2]]
        parts = draw(st.integers(1, 2))
        placed = [draw(st.integers(0, parts - 1)) for _ in pieces]
        for part in range(parts):
            covers: tuple[Cover, ...] = tuple(
                c for c, at in zip(pieces, placed, strict=True) if at == part
            )
            missing = draw(st.integers(0, 3)) == 0
            if covers and not missing:
                done.append(Contribution(clock, covers, {}))
    return plan, draw(st.permutations(done))


@given(histories(), st.sets(st.integers(0, 2)), st.integers(0, 2))
def test_reusable_contributions_equal_brute_force(
    history: tuple[WorkPlan, list[Contribution]], mine: set[int], clock: int
) -> None:
    plan, kept = history
    found, positions = reusable(plan, kept, mine, clock)
    assert {kept.index(one) for one in found} == brute_force(plan, kept, mine, clock)
    have = set[tuple[int, int, int]]().union(*(chunks_of(one) for one in found))
    assert positions.keys() == mine
    for shard, at in positions.items():
        before = {
            (shard, c, chunk)
            for c in range(clock + 1, at.clock)
            for chunk in range(plan.chunks(shard, c))
        }
        assert {one for one in have if one[0] == shard} == before | {
            (shard, at.clock, n) for n in range(at.chunk)
        }


def test_an_unusable_contribution_may_invalidate_others() -> None:
    plan = WorkPlan((2, 2), 0, 1)
    one = Contribution(1, ((0, 0, 2), (1, 0, 2)), {})
    two = Contribution(2, ((0, 0, 2),), {})
    assert reusable(plan, [two, one], {0, 1}, 0) == (
        [one, two],
        {0: Position(3, 0), 1: Position(2, 0)},
    )
    # Shard 1 has another worker now: contributions that contain it are dropped, and those that
    # build on them.
    assert reusable(plan, [one, two], {0}, 0) == ([], {0: Position(1, 0)})
    assert reusable(plan, [one, two], {0}, 1) == ([two], {0: Position(3, 0)})


def positions(harness: Harness) -> dict[int, Position]:
    return {shard: left.position for shard, left in harness.worker.shards.items()}


def test_chunks_are_computed_furthest_behind_first_and_sent_by_clock() -> None:
    harness, task = begun()
    result = harness.work([task])
    assert tasks(result) == [(1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]
    done = [
        one.message for one in result if isinstance(one, Send) and isinstance(one.message, WorkDone)
    ]
    assert [(one.clock, one.chunks) for one in done] == [(1, 4)]
    sent = pushes(result)
    assert [(to, push.covers, push.want) for to, push in sent] == [
        (n, ((0, 0, 2), (1, 0, 2)), 1) for n in "pq"
    ]
    # It waits for version 1, which it requested with the push.
    assert positions(harness) == {0: Position(2, 0), 1: Position(2, 0)}
    assert harness.receive(snapshot(0, 1)) == []
    assert harness.receive(snapshot(1, 1)) == [Compute(Chunk(1, 2, 0, 0, 0, 2, 0))]


def test_finished_work_is_sent_again_after_a_rollback_instead_of_redone() -> None:
    harness, task = begun()
    harness.work([task])
    result = harness.receive(recover(epoch=2))
    assert [(push.epoch, push.covers, push.want) for _, push in pushes(result)] == [
        (2, ((0, 0, 2), (1, 0, 2)), -1)
    ] * 2
    assert positions(harness) == {0: Position(2, 0), 1: Position(2, 0)}


def test_work_of_an_unfinished_clock_is_kept() -> None:
    harness, task = begun()
    (following,) = harness.finish(task)
    assert isinstance(following, Compute)
    assert harness.receive(recover(epoch=2)) == []
    # The current chunk is finished first; the chunks done so far are not repeated.
    result = harness.finish(following)
    assert [push.covers for _, push in pushes(result)] == [((0, 0, 1), (1, 0, 1))] * 2
    assert positions(harness) == {0: Position(1, 1), 1: Position(1, 1)}

"""Partitions on servers and backups, by hand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule, Declarations
from agileml.params.deltas import RowDelta, Rows, assigned
from agileml.params.layout import Layout, PartitionState
from agileml.protocol.messages import (
    GradientSums,
    PendingPush,
    Tally,
    UpdateEntry,
    Version,
    Waiting,
)
from agileml.roles.partitions import (
    NOTHING,
    Commit,
    PendingClock,
    ServedPartition,
    ServingRules,
    keep_from,
)
from agileml.work import CountedWork, WorkPlan
from tests.agileml.toys import Decades

RULE = CommitRule(Layout.cut({"w": np.zeros(3, np.float32)}, 1), Declarations.of(Decades()))
TALLY = Tally(0, 0)


def entry(shard: int, chunk: int, *values: float) -> UpdateEntry:
    return UpdateEntry(shard, chunk, [RowDelta(None, np.array(values, np.float32))])


def served(
    ordered: bool = True, lengths: tuple[int, ...] = (2,), *, awaits: bool = False
) -> ServedPartition:
    rules = ServingRules(CountedWork(WorkPlan(lengths, 0, 1), awaits), RULE, ordered, fresh=False)
    return ServedPartition(0, rules, {0: Version(0, TALLY, [np.zeros(3, np.float32)])}, 0)


def committed(part: ServedPartition) -> Commit:
    """The only version that follows."""
    (commit,) = part.advance().commits
    return commit


def test_a_clock_is_committed_when_all_accepted_chunks_have_arrived() -> None:
    part = served(lengths=(2, 1))
    part.contribute(1, [(0, 0, 2)], [entry(0, 0, 1, 1, 1), entry(0, 1, 1, 2, 3)])
    assert part.advance() is NOTHING
    part.contribute(1, [(1, 0, 1)], [entry(1, 0, 1, 0, 0)])
    assert committed(part).version is part.latest
    assert part.latest.state[0].tolist() == [3, 3, 4]
    assert (part.clock, part.latest.tally.chunks, part.pending) == (1, 3, {})
    assert part.versions[0].state[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("ordered", [True, False])
def test_late_contributions_are_left_out_and_the_others_weigh_more(ordered: bool) -> None:
    part = served(ordered, lengths=(1, 1, 2), awaits=True)
    part.contribute(1, [(0, 0, 1)], [entry(0, 0, 1, 1, 1)])
    part.contribute(1, [(2, 0, 2)], [entry(2, 0, 9, 9, 9)])
    part.contribute(1, [(1, 0, 1)], [entry(1, 0, 1, 2, 3)])
    assert part.advance() is NOTHING
    part.rules.work.decide([(1, ((0, 0, 1), (1, 0, 1)))])
    part.contribute(1, [(2, 0, 2)], [entry(2, 0, 9, 9, 9)])
    sums = committed(part).sums
    assert part.latest.state[0].tolist() == [4, 6, 8]
    assert part.latest.tally.chunks == 2
    assert sums == GradientSums(2, 3 + 14, 4 + 9 + 16)
    part.contribute(1, [(2, 0, 2)], [entry(2, 0, 9, 9, 9)])
    with pytest.raises(InvalidTransition, match="arrived again"):
        part.contribute(1, [(1, 0, 1)], [entry(1, 0, 1, 2, 3)])


def test_successive_gradients_are_compared_on_the_server_that_saw_both() -> None:
    part = served(lengths=(1, 1), awaits=True)
    for clock, values in ((1, (1, 2, 3)), (2, (1, -1, 1)), (3, (5, 0, 0))):
        if clock == 3:
            part.versions[3], part.clock = part.latest, 3
            continue
        part.contribute(clock, [(0, 0, 1)], [entry(0, 0, *values)])
        part.contribute(clock, [(1, 0, 1)], [entry(1, 0, 9, 9, 9)])
        part.rules.work.decide([(clock, ((0, 0, 1),))])
        assert committed(part).sums == GradientSums(
            1, *((14, 14, None) if clock == 1 else (3, 3, 2))
        )
    # It missed clock 3.
    part.contribute(4, [(0, 0, 1)], [entry(0, 0, 1, 1, 1)])
    part.rules.work.decide([(3, ()), (4, ((0, 0, 1),))])
    assert committed(part).sums == GradientSums(1, 3, 3, None)


def test_late_contributions_to_a_partition_that_moved_here_before_its_decision() -> None:
    part = served(lengths=(1, 1), awaits=True)
    part.versions[1], part.clock = part.latest, 1
    part.contribute(1, [(1, 0, 1)], [entry(1, 0, 1, 2, 3)])
    assert not part.pending


def test_the_sum_does_not_depend_on_the_order_of_arrival() -> None:
    entries = [
        entry(shard, chunk, 10.0 ** (3 * shard - chunk), 0.1, 1e-8)
        for shard in range(3)
        for chunk in range(2)
    ]
    sums = set()
    for mixed in itertools.permutations(entries):
        pending = PendingClock(ordered=True)
        for one in mixed:
            pending.add([(one.shard, one.chunk, one.chunk + 1)], [one], 1)
        summed = pending.summed()
        assert summed is not None
        assert summed[0] is not None
        sums.add(summed[0].values.tobytes())
    assert len(sums) == 1


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("rows", [None, np.array([0, 2], np.int32)])
def test_contributions_stay_as_they_are_because_their_workers_may_send_them_again(
    ordered: bool, rows: Rows | None
) -> None:
    pending = PendingClock(ordered)
    values = [np.full((3 if one is None else 2, 1), 1.0, np.float32) for one in (rows, None, rows)]
    deltas = [RowDelta(one, some) for one, some in zip((rows, None, rows), values, strict=True)]
    for chunk, delta in enumerate(deltas):
        pending.add([(0, chunk, chunk + 1)], [UpdateEntry(0, chunk, [delta])], 1)
    summed = pending.summed()
    assert summed is not None
    assert summed[0] is not None
    expected = [3, 3, 3] if rows is None else [3, 1, 3]
    assert summed[0].values.ravel().tolist() == expected
    assert all((some == 1).all() for some in values)


@pytest.mark.parametrize("cover", [(0, 0, 1), (0, 1, 2), (0, 0, 3)])
def test_a_repeated_chunk_is_refused(cover: tuple[int, int, int]) -> None:
    part = served()
    part.contribute(1, [(0, 0, 2)], [])
    with pytest.raises(InvalidTransition, match=r"partition 0, clock 1: chunks .* arrived twice"):
        part.contribute(1, [cover], [])


def test_a_chunk_of_a_committed_clock_is_refused() -> None:
    part = served()
    part.contribute(1, [(0, 0, 2)], [])
    part.advance()
    with pytest.raises(
        InvalidTransition, match=r"is at version 1; chunks .* of clock 1 arrived again"
    ):
        part.contribute(1, [(0, 0, 1)], [])


@pytest.mark.parametrize("ordered", [True, False])
def test_contributions_to_later_clocks_are_handed_over(ordered: bool) -> None:
    part, other = served(ordered), served(ordered)
    entries = [entry(0, 0, 1, 2, 3), entry(0, 1, 3, 2, 1)] if ordered else [entry(-1, -1, 4, 4, 4)]
    part.contribute(2, [(0, 0, 2)], entries)
    (moved,) = part.pending[2].handed_over(2)
    assert isinstance(moved, PendingPush)
    assert (moved.clock, moved.covers, len(moved.entries)) == (2, ((0, 0, 2),), len(entries))
    other.contribute(moved.clock, moved.covers, moved.entries)
    before, after = part.pending[2].summed(), other.pending[2].summed()
    assert before is not None
    assert after is not None
    assert before[0] is not None
    assert after[0] is not None
    assert before[0].values.tolist() == after[0].values.tolist() == [4, 4, 4]
    assert other.pending[2].fingerprint == part.pending[2].fingerprint


def test_waiters_are_answered_once_by_version() -> None:
    part = served(lengths=(1,))
    for worker, at_least in [("a", 1), ("b", 0), ("c", 1), ("a", 2)]:
        part.readers.wait(Waiting(worker, at_least, whole=True))
    assert [worker for worker, _ in part.advance().replies] == ["b"]
    part.contribute(1, [(0, 0, 1)], [])
    assert [worker for worker, _ in part.advance().replies] == ["a", "c"]
    assert part.clock == 1
    assert part.readers.waiting == {2: [Waiting("a", 2, whole=True)]}


def test_unchanged_rows_are_those_of_the_base() -> None:
    base: PartitionState = [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(2)]
    rows = RowDelta(np.array([2], np.int32), np.array([[9, 9]], np.float32))
    after = assigned(base, [rows, None])
    assert after[0].tolist() == [[0, 1], [2, 3], [9, 9]]
    assert after[1] is base[1]
    assert base[0][2].tolist() == [4, 5]


@pytest.mark.parametrize("seed", range(20))
def test_the_newest_version_always_stays(seed: int) -> None:
    chance = random.Random(seed)
    clocks = chance.sample(range(10), chance.randrange(1, 10))
    versions = {clock: Version(clock, TALLY, []) for clock in clocks}
    before = chance.randrange(12)
    keep_from(versions, before)
    assert set(versions) == {clock for clock in clocks if clock >= before or clock == max(clocks)}

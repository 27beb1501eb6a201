"""Work plans and coverage against brute force."""

from __future__ import annotations

from hypothesis import given, strategies as st

from agileml.work import FINGERPRINT_MASK, Accepted, Cover, Coverage, WorkPlan, cover_fingerprint

PLANS = st.builds(
    WorkPlan,
    st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple),
    st.integers(0, 8),
    st.integers(1, 7),
)
COVERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 4)).map(
        lambda c: (c[0], c[1], c[1] + c[2])
    ),
    max_size=20,
)


@given(PLANS)
def test_chunks_divide_the_items_of_a_clock_without_gap_or_overlap(plan: WorkPlan) -> None:
    for shard, length in enumerate(plan.lengths):
        for clock in (1, 2, 3):
            low, high = plan.items(shard, clock)
            pieces = [
                plan.bounds(shard, clock, chunk) for chunk in range(plan.chunks(shard, clock))
            ]
            assert [item for first, last in pieces for item in range(first, last)] == list(
                range(low, high)
            )
            assert 0 <= low <= high <= length


@given(PLANS)
def test_batches_cycle_through_the_whole_shard(plan: WorkPlan) -> None:
    for shard, length in enumerate(plan.lengths):
        rounds = -(-length // plan.batch) if plan.batch else 1
        seen = [item for clock in range(1, rounds + 1) for item in range(*plan.items(shard, clock))]
        assert seen == list(range(length))


@given(PLANS, st.integers(0, 4))
def test_rotating_shards_visit_every_place_once_in_a_turn(plan: WorkPlan, turns: int) -> None:
    count, rotating = len(plan.lengths), plan.rotating()
    clocks = range(turns * count + 1, turns * count + count + 1)
    for place in range(count):
        assert sorted(rotating.shard_at(place, clock) for clock in clocks) == list(range(count))
    for clock in clocks:
        assert sorted(rotating.shard_at(place, clock) for place in range(count)) == list(
            range(count)
        )
        assert (
            rotating.covers_of_shards(rotating.accept_all(clock)) == plan.accept_all(clock).covers
        )
        assert rotating.items(0, clock) == plan.items(rotating.shard_at(0, clock), clock)


def test_the_order_of_rotating_shards_changes_from_turn_to_turn() -> None:
    plan = WorkPlan((1,) * 16, 0, 1).rotating()
    assert (
        len(
            {
                tuple(plan.shard_at(0, 16 * turn + clock) for clock in range(1, 17))
                for turn in range(8)
            }
        )
        == 8
    )


@given(COVERS)
def test_coverage_is_a_set_of_chunks(covers: list[Cover]) -> None:
    coverage, chunks = Coverage(), set[tuple[int, int]]()
    for cover in covers:
        mine = {(cover[0], chunk) for chunk in range(cover[1], cover[2])}
        assert coverage.clash([cover]) == (cover if mine & chunks else None)
        if not mine & chunks:
            coverage.add([cover])
            chunks |= mine
    assert coverage.chunks == len(chunks)
    assert coverage.complete(Accepted(1, tuple(coverage.covers())))
    assert not coverage.complete(Accepted(1, (*coverage.covers(), (9, 0, 1))))
    assert not coverage.complete(Accepted(1, (*coverage.covers()[1:], (9, 0, 99))))
    assert {
        (shard, chunk) for shard, low, high in coverage.covers() for chunk in range(low, high)
    } == chunks


@given(
    st.integers(1, 50), st.integers(0, 9), st.integers(0, 20), st.integers(1, 9), st.integers(1, 9)
)
def test_a_fingerprint_is_the_sum_of_its_chunks(
    clock: int, shard: int, first: int, one: int, two: int
) -> None:
    middle, last = first + one, first + one + two
    parts = cover_fingerprint(clock, (shard, first, middle)) + cover_fingerprint(
        clock, (shard, middle, last)
    )
    assert cover_fingerprint(clock, (shard, first, last)) == parts & FINGERPRINT_MASK


def test_fingerprints_of_chunks_differ() -> None:
    every = [
        (clock, shard, chunk) for clock in range(20) for shard in range(20) for chunk in range(20)
    ]
    assert len(
        {cover_fingerprint(clock, (shard, chunk, chunk + 1)) for clock, shard, chunk in every}
    ) == len(every)


def test_the_fingerprint_of_whole_clocks() -> None:
    plan = WorkPlan((3, 2), 0, 1)
    chunks = [
        (shard, chunk) for shard, length in enumerate(plan.lengths) for chunk in range(length)
    ]
    expected = sum(
        cover_fingerprint(clock, (shard, c, c + 1)) for clock in (1, 2) for shard, c in chunks
    )
    whole = sum(plan.accept_all(clock).fingerprint for clock in (1, 2))
    assert whole & FINGERPRINT_MASK == expected & FINGERPRINT_MASK

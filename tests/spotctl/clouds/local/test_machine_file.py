"""Which of a machine's ends comes first."""

from __future__ import annotations

from hypothesis import given, strategies as st

from spotctl.clouds.local.machine_file import (
    EVICTED,
    LEASE_ENDED,
    RETURNED,
    PlannedEnd,
    ReplayedEnd,
    end_of,
)

moments = st.integers(0, 40)


@given(st.none() | moments, moments, st.none() | moments, moments)
def test_the_first_end_counts_whenever_it_is_asked(
    taken_at: int | None, lease_until: int, returned_at: int | None, now: int
) -> None:
    found = end_of(PlannedEnd(0, taken_at), lease_until, returned_at, now)
    ends = [(taken_at, EVICTED), (returned_at, RETURNED), (lease_until, LEASE_ENDED)]
    first = min(at for at, _ in ends if at is not None)
    if now < first:
        assert found is None
    else:
        assert found is not None
        assert found.at == first
        assert found.reason == next(reason for at, reason in ends if at == first)
        assert end_of(PlannedEnd(0, taken_at), lease_until, returned_at, now + 1) == found


def test_no_machine_ends_before_it_starts() -> None:
    assert end_of(PlannedEnd(50), 20, None, 60) == ReplayedEnd(50, LEASE_ENDED)

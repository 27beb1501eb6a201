"""The count of updates: lost, doubled, or one in the place of another."""

from __future__ import annotations

from agileml.job import Counters
from agileml.protocol.messages import Tally, Version
from agileml.runtime.results import counted
from agileml.work import FINGERPRINT_MASK, WorkPlan

PLAN = WorkPlan((4, 4), batch=0, chunk_items=2)


def version(chunks: int, fingerprint: int) -> Version:
    return Version(2, Tally(chunks, fingerprint), [])


def test_missing_and_doubled_updates_are_counted() -> None:
    expected = sum(PLAN.accept_all(clock).fingerprint for clock in (1, 2)) & FINGERPRINT_MASK
    assert counted((8, expected), (version(8, expected),) * 2) == Counters(16, 16, 0, 0)
    assert counted((8, expected), (version(8, expected), version(7, expected - 1))) == Counters(
        16, 15, 1, 0
    )
    assert counted((8, expected), (version(8, expected), version(10, expected + 1))) == Counters(
        16, 18, 0, 2
    )
    assert counted((8, expected), (version(8, expected), version(8, expected + 1))) == Counters(
        16, 16, 1, 1
    )

"""The simulated stages, on few machines."""

from __future__ import annotations

import pytest

from agileml.protocol.messages import Snapshot
from spotctl.lab.papers.agileml import (
    COMPUTE_SECONDS,
    MOVIE_BYTES,
    USER_BYTES,
    Netflix,
    iteration_seconds,
)


def test_four_servers_and_workers_compute_sixteen_times_as_long_as_sixty_four() -> None:
    seconds = iteration_seconds(4, 0, 1)
    assert seconds == pytest.approx(16 * COMPUTE_SECONDS, rel=0.05)
    assert seconds > 16 * COMPUTE_SECONDS


def test_the_last_stage_serves_few_reliable_machines_best() -> None:
    first, last = (iteration_seconds(1, 15, stage) for stage in (1, 3))
    assert last < first


def test_a_reader_is_sent_the_rows_it_uses() -> None:
    rows, whole = (Netflix(4, 64, each) for each in (False, True))
    snapshot = object.__new__(Snapshot)
    assert rows(snapshot) == pytest.approx((MOVIE_BYTES + USER_BYTES / 64) / 4, abs=100)
    assert whole(snapshot) == pytest.approx((MOVIE_BYTES + USER_BYTES) / 4, abs=100)

"""Machines that cannot be divided equally among equal jobs."""

from __future__ import annotations

import pytest

from tests.bidbrain.decision.rotation import handed_on, kept, rotated


@pytest.mark.parametrize(("jobs", "machines"), [(2, 3), (2, 5), (3, 5), (4, 7), (5, 12), (6, 11)])
def test_no_job_ends_later_than_with_rotation_if_machines_are_handed_on(jobs: int, machines: int) -> None:
    ends, even = handed_on(jobs, machines, machines), rotated(jobs, machines, machines)
    assert all(end <= rotation for end, rotation in zip(ends, even, strict=True))
    assert ends[0] < even[0]
    assert ends[-1] == even[-1] < kept(jobs, machines, machines)[-1]


@pytest.mark.parametrize(("jobs", "machines", "most"), [(2, 3, 2), (3, 5, 2), (6, 11, 2), (3, 8, 3)])
def test_jobs_that_cannot_use_all_machines_end_less_than_half_as_late_again(
    jobs: int, machines: int, most: int
) -> None:
    ends, even = handed_on(jobs, machines, most), rotated(jobs, machines, most)
    assert even[-1] < ends[-1] < 1.5 * even[-1]

"""Ranges of machines."""

from __future__ import annotations

import pytest

from spotctl.files.job.spec import Range


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        (Range(4, 64), (4, 20, 64), (3, 65)),
        (Range(8), (8, 10**6), (7,)),
        (Range(2.5, 2.5), (2.5,), (2.4, 3)),
    ],
)
def test_a_range_holds_both_its_ends(
    range_: Range[int] | Range[float], inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    assert all(value in range_ for value in inside)
    assert not any(value in range_ for value in outside)

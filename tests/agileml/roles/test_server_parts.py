"""Copies of partitions, and the patches that bring them forward."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agileml.params.deltas import RowDelta
from agileml.protocol.messages import (
    Patch,
    Tally,
)
from agileml.roles.server_parts import BackupPartition


def patch(base: int, clock: int, value: float) -> Patch:
    return Patch(
        1, 0, base, clock, Tally(clock, 0), [RowDelta(None, np.full(2, value, np.float32))]
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_patches_in_any_order_give_every_version(order: tuple[int, ...]) -> None:
    patches = [patch(-1, 0, 0.0), patch(0, 1, 1.0), patch(1, 2, 2.0), patch(2, 3, 3.0)]
    copy, seen = BackupPartition(0, {}), list[int]()
    for number in order:
        new = copy.take(patches[number])
        assert new == sorted(new)
        seen += new
        # A version appears once all earlier ones are there.
        assert max(seen, default=-1) == len(seen) - 1
    assert seen == [0, 1, 2, 3]
    assert {clock: version.state[0].tolist() for clock, version in copy.versions.items()} == {
        clock: [clock, clock] for clock in range(4)
    }


def test_a_copy_that_is_sent_again_keeps_its_values() -> None:
    copy = BackupPartition(0, {})
    for one in (
        patch(-1, 3, 3.0),
        patch(3, 4, 4.0),
        patch(-1, 3, 3.0),
        patch(-1, 4, 4.0),
        patch(4, 5, 5.0),
    ):
        copy.take(one)
    assert [version.state[0][0] for _, version in sorted(copy.versions.items())] == [3, 4, 5]

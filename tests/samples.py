"""Tests that are many and alike: `make test` runs a sample of them, another each time, `make all-tests` all."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest

VARIABLE = "SPOTCTL_TEST_SAMPLES"


def sampled(items: Iterable[pytest.Item], seed: object) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests to run and those to leave out, in order: of each marked function or class as many as its marker says.

    All processes of a run draw the same tests, because they have the same seed.
    """
    items, groups = list(items), dict[str, list[pytest.Item]]()
    for item in items:
        if item.get_closest_marker("sampled"):
            groups.setdefault(_group(item), []).append(item)
    left_out = set[pytest.Item]()
    for name, group in groups.items():
        marker = group[0].get_closest_marker("sampled")
        assert marker is not None
        (most,) = marker.args
        alike = sorted(group, key=lambda item: item.nodeid)
        left_out.update(random.Random(f"{seed} {name}").sample(alike, max(len(alike) - most, 0)))
    return [one for one in items if one not in left_out], [one for one in items if one in left_out]


def _group(item: pytest.Item) -> str:
    """The class that is marked as a whole, or the function with all its parameters."""
    by_class = item.parent is not None and item.parent.get_closest_marker("sampled") is not None
    name = item.nodeid.partition("[")[0]
    return name.rpartition("::")[0] if by_class else name


def wanted() -> bool:
    """Whether this run is of a sample."""
    return bool(os.environ.get(VARIABLE))

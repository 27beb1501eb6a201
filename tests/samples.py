"""Parts of the tests: `make test` runs a short part within minutes, `make long-tests` the rest, `make all-tests` all.

`long_tests.txt` lists the tests whose time `make check` does not spend: few tests take most of the time. Of tests that
are many and alike, a run may take a sample, another each time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE, PART = "SPOTCTL_TEST_SAMPLES", "SPOTCTL_TEST_PART"
LONG_TESTS = Path(__file__).with_name("long_tests.txt")

SHORT, LONG = "short", "long"


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
    return [item for item in items if item not in left_out], [item for item in items if item in left_out]


def _group(item: pytest.Item) -> str:
    """The class that is marked as a whole, or the function with all its parameters."""
    by_class = item.parent is not None and item.parent.get_closest_marker("sampled") is not None
    name = item.nodeid.partition("[")[0]
    return name.rpartition("::")[0] if by_class else name


def wanted() -> bool:
    """Whether this run is of a sample."""
    return bool(os.environ.get(VARIABLE))


def long_tests() -> frozenset[str]:
    """The listed tests: functions with all their parameters, or single cases."""
    lines = (line.strip() for line in LONG_TESTS.read_text(encoding="utf-8").splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def is_long(nodeid: str, listed: frozenset[str]) -> bool:
    return nodeid in listed or nodeid.partition("[")[0] in listed


def part_of(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of the part that the environment names, and the others; without a part, all."""
    items, part, listed = list(items), os.environ.get(PART), long_tests()
    if not part:
        return items, []
    chosen = {item for item in items if is_long(item.nodeid, listed) == (part == LONG)}
    return [item for item in items if item in chosen], [item for item in items if item not in chosen]

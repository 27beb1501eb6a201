"""PSLD's decisions: which servers are fast, and where blocks go."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from agileml.policies.psld import MEASUREMENTS_BEFORE_MOVE, PSLD, Line, candidates, superior_set

SERVERS = ("a", "b", "c", "d")
BLOCKS = 40


def measured(speeds: dict[str, float], noise: float = 0.0, policy: PSLD | None = None) -> PSLD:
    """Exchanges of ten blocks with each server; a speed is in blocks per second."""
    rng, policy = random.Random(1), policy or PSLD()
    for _ in range(2 * MEASUREMENTS_BEFORE_MOVE):
        for name, speed in speeds.items():
            policy = policy.with_measurement(name, 10, 10 / speed * (1 + noise * rng.random()))
    return policy


def even() -> tuple[str, ...]:
    return tuple(SERVERS[block % 4] for block in range(BLOCKS))


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_blocks_leave_a_server_that_is_slow(noise: float) -> None:
    policy = measured({"a": 1.0, "b": 10.0, "c": 10.0, "d": 10.0}, noise)
    policy, place = policy.propose(even(), [1] * BLOCKS, SERVERS)
    assert place is not None
    # One block stays, by which its recovery would be noticed.
    assert Counter(place.owners) == {"a": 1, "b": 13, "c": 13, "d": 13}
    again = measured({"a": 1.0, "b": 10.0, "c": 10.0, "d": 10.0}, noise, policy)
    assert again.propose(place.owners, [1] * BLOCKS, SERVERS)[1] is None
    # The nine that leave, and no others.
    assert sum(before != after for before, after in zip(even(), place.owners, strict=True)) == 9
    assert not place.short
    assert "servers differ by a factor of" in place.reason


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_servers_that_are_about_as_fast_keep_their_blocks(noise: float) -> None:
    speeds = {"a": 9.0, "b": 10.0, "c": 10.0, "d": 11.0}
    assert measured(speeds, noise).propose(even(), [1] * BLOCKS, SERVERS)[1] is None


@pytest.mark.parametrize("few", [1, 3, 4])
def test_blocks_return_to_a_server_that_has_recovered(few: int) -> None:
    crowded = ("a",) * few + tuple(SERVERS[1 + block % 3] for block in range(BLOCKS - few))
    _, place = measured(dict.fromkeys(SERVERS, 10.0)).propose(crowded, [1] * BLOCKS, SERVERS)
    assert place is not None
    assert Counter(place.owners)["a"] >= 7


def test_another_server_is_asked_for_when_few_are_fast() -> None:
    _, place = measured({"a": 1.0, "b": 1.0, "c": 1.0, "d": 10.0}).propose(
        even(), [1] * BLOCKS, SERVERS
    )
    assert place is not None
    assert place.short


def test_nothing_moves_before_the_new_assignment_is_measured() -> None:
    policy, place = measured({"a": 1.0, "b": 10.0, "c": 10.0, "d": 10.0}).propose(
        even(), [1] * BLOCKS, SERVERS
    )
    assert place is not None
    assert policy.propose(place.owners, [1] * BLOCKS, SERVERS)[1] is None
    assert PSLD().propose(even(), [1] * BLOCKS, SERVERS)[1] is None


def test_the_superior_set_ends_where_intervals_no_longer_overlap() -> None:
    lines = {
        "a": Line(1.0, 0.0, 0.3),
        "b": Line(1.4, 0.0, 0.1),
        "c": Line(3.0, 0.0, 0.01),
        "d": Line(5.0, 0.0, 1.0),
    }
    assert superior_set(lines, 1.0) == ["a", "b"]
    assert candidates(lines, 1.0, 1.0) == ["a", "b"]
    assert candidates(lines, 1.0, 2.0) == ["a", "b", "c"]


def get_superior(lines: dict[str, Line], size: float) -> set[str]:
    """Algorithm 1, line by line."""
    superior: set[str] = set()
    remained = set(lines)
    threshold = math.inf
    while remained:
        upper = {r: lines[r].mean(size) + 1.645 * lines[r].error for r in remained}
        lower = {r: lines[r].mean(size) - 1.645 * lines[r].error for r in remained}
        r = min(remained, key=upper.__getitem__)
        if lower[r] >= threshold:
            break
        threshold = upper[r]
        superior.add(r)
        remained.remove(r)
    return superior


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_the_superior_set_is_that_of_the_paper(noise: float) -> None:
    chance, sizes = random.Random(7), Counter[int]()
    for _ in range(400):
        lines = {
            name: Line(chance.uniform(0.1, 1), chance.uniform(0, 2), noise * chance.random())
            for name in "abcdefgh"[: chance.randint(1, 8)]
        }
        size = chance.uniform(0.1, 10)
        assert set(superior_set(lines, size)) == get_superior(lines, size)
        sizes[len(superior_set(lines, size))] += 1
    assert len(sizes) > 1


def test_precisely_measured_servers_that_are_about_as_fast_are_all_used() -> None:
    """Their bounds do not overlap; all blocks on the first one would take four times as long."""
    lines = {name: Line(1.0 + 0.1 * number, 0.0, 0.0) for number, name in enumerate(SERVERS)}
    assert superior_set(lines, 1.0) == ["a"]
    assert candidates(lines, 1.0, 1.0) == list(SERVERS)


def test_a_line_is_fitted_where_sizes_differ() -> None:
    line = Line.through([(10, 2.0), (20, 3.0), (30, 4.0), (40, 5.0)])
    assert (line.slope, line.start) == pytest.approx((0.1, 1.0))
    assert Line.through([(10, 2.0)] * 4).mean(5) == pytest.approx(1.0)

"""Placement: balance, few changes, and the nodes that each stage uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, strategies as st

from agileml.core.placement import Footprint, balance, level, may_serve, target_table
from agileml.policies.stage import Thresholds, stage_of
from agileml.protocol.messages import Table

HOSTS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
CURRENT = st.lists(st.sampled_from(["", *"abcdefghxyz"]), min_size=1, max_size=24)


def even(
    current: Sequence[str], hosts: Sequence[str], preferred: Mapping[int, Sequence[str]]
) -> tuple[str, ...]:
    return balance(current, hosts, preferred, [7] * len(current), {})


def placed(
    footprint: Footprint, stage: int, now: Table, previous: Mapping[int, Sequence[str]]
) -> Table:
    return target_table(footprint, stage, now, previous, [7] * len(now.owners))


def most_that_can_stay(current: Sequence[str], hosts: Sequence[str]) -> int:
    """By counting: each host keeps at most its share."""
    share = -(-len(current) // len(hosts))
    return sum(min(share, count) for host, count in Counter(current).items() if host in hosts)


@given(CURRENT, HOSTS.filter(bool))
def test_items_are_spread_evenly_and_as_many_as_possible_stay(
    current: list[str], hosts: list[str]
) -> None:
    places = even(current, hosts, {})
    load = Counter(places)
    assert set(places) <= set(hosts)
    assert max(load.values()) <= -(-len(current) // len(hosts))
    stayed = sum(before == after for before, after in zip(current, places, strict=True))
    assert stayed == most_that_can_stay(current, hosts)


@given(CURRENT, HOSTS.filter(bool))
def test_a_balanced_placement_does_not_change(current: list[str], hosts: list[str]) -> None:
    places = even(current, hosts, {})
    assert even(places, hosts, {}) == places


@given(CURRENT, HOSTS.filter(bool), st.data())
def test_a_preferred_host_is_used_if_it_has_room(
    current: list[str], hosts: list[str], data: st.DataObject
) -> None:
    wishes = {
        item: [data.draw(st.sampled_from(hosts))]
        for item in range(len(current))
        if current[item] not in hosts
    }
    places = even(current, hosts, wishes)
    share, load = -(-len(current) // len(hosts)), Counter(places)
    for item, wished in wishes.items():
        assert places[item] == wished[0] or load[wished[0]] == share


WEIGHTS = st.lists(st.integers(0, 1000), min_size=1, max_size=24)
SPEEDS = st.fixed_dictionaries({}, optional=dict.fromkeys("abcdefgh", st.floats(0.25, 4.0)))


@given(WEIGHTS, HOSTS.filter(bool), SPEEDS)
def test_no_host_exceeds_its_share_by_more_than_the_heaviest_item(
    weights: list[int], hosts: list[str], speeds: dict[str, float]
) -> None:
    places = balance([""] * len(weights), hosts, {}, weights, speeds)
    weight = [max(1, one) for one in weights]
    load = {
        host: sum(w for w, place in zip(weight, places, strict=True) if place == host)
        for host in hosts
    }
    rates = {host: speeds.get(host, 1.0) for host in hosts}
    for host in hosts:
        # Each item went where it finished first, so that no other host could have finished it
        # earlier.
        share = (sum(weight) + (len(hosts) - 1) * max(weight)) * rates[host] / sum(rates.values())
        assert load[host] <= share + 1e-6


def test_a_host_that_is_twice_as_fast_serves_twice_the_bytes() -> None:
    places = balance([""] * 6, ["slow", "fast"], {}, [10] * 6, {"fast": 2.0})
    assert Counter(places) == {"fast": 4, "slow": 2}


def test_a_heavy_partition_counts_as_much_as_several_light_ones() -> None:
    places = balance([""] * 5, ["a", "b"], {}, [40, 10, 10, 10, 10], {})
    assert places == ("a", "b", "b", "b", "b")
    # Weights that differ by one row count as equal and cause no moves.
    now = ["a", "b"] * 4
    assert balance(now, ["a", "b"], {}, [1000, 1001] * 4, {}) == tuple(now)
    assert Counter(balance(["a"] * 8, ["a", "b"], {}, [1001] * 4 + [1000] * 4, {})) == {
        "a": 4,
        "b": 4,
    }


def test_items_are_levelled_with_as_few_moves_as_that_takes() -> None:
    # Twelve hosts. Eight of them hold six items each; every other one of these gives up one item.
    hosts = [f"r{number}" for number in range(4)] + [f"t{number}" for number in range(8)]
    now = [host for host in hosts for _ in range(4 if host[0] == "r" else 6)]
    found = level(now, hosts, (), {}, {})
    assert sorted(Counter(found).values()) == [5] * 8 + [6] * 4
    assert sum(before != after for before, after in zip(now, found, strict=True)) == 4
    # Servers have what is left over, which takes one more move for each of them.
    served = level(now, hosts, hosts[:4], {}, {})
    assert Counter(served) == {host: 6 if host[0] == "r" else 5 for host in hosts}
    assert sum(before != after for before, after in zip(now, served, strict=True)) == 8


def test_an_item_that_moves_is_one_that_its_host_has_had() -> None:
    assert level("aaaab", "ab", (), {1: ["b"]}, {}) == tuple("abaab")


@given(CURRENT, HOSTS.filter(bool), st.data())
def test_level_hosts_stay_as_they_are_although_their_speeds_waver(
    current: list[str], hosts: list[str], data: st.DataObject
) -> None:
    servers = data.draw(st.sets(st.sampled_from(hosts)))
    found = level(even(current, hosts, {}), hosts, servers, {}, {})
    wavering = {host: data.draw(st.floats(0.99, 1.01)) for host in hosts}
    assert level(found, hosts, servers, {}, wavering) == found


def test_a_faster_host_has_more_items_when_all_are_level() -> None:
    assert Counter(level("a" * 8 + "b" * 4, "ab", (), {}, {"b": 2.0})) == {"a": 4, "b": 8}


def test_without_hosts_nothing_is_placed() -> None:
    assert even(["a", "b"], [], {}) == ("", "")


@pytest.mark.parametrize(
    ("reliable", "transient", "stage"),
    [
        (1, 0, 1),
        (1, 1, 1),
        (2, 2, 1),
        (2, 3, 2),
        (1, 2, 2),
        (1, 15, 2),
        (1, 16, 3),
        (4, 60, 2),
        (4, 61, 3),
        (0, 1, 3),
    ],
)
def test_stages_of_the_paper(reliable: int, transient: int, stage: int) -> None:
    assert stage_of((reliable, transient), Thresholds()) == stage


def table(owners: Sequence[str], backups: Sequence[str], workers: Sequence[str]) -> Table:
    return Table(7, tuple(owners), tuple(backups), tuple(workers))


EMPTY = table([""] * 4, [""] * 4, [""] * 6)


def test_the_three_stages_by_hand() -> None:
    footprint = Footprint(("r",), ("s", "t", "u"))
    first = placed(footprint, 1, EMPTY, {})
    assert first == table(["r"] * 4, [""] * 4, "rsturs")
    second = placed(footprint, 2, first, {})
    # Half of three, rounded up, is two; the reliable server keeps a backup, and the second shard
    # goes to a server.
    assert second == table("stst", ["r"] * 4, "rstuts")
    third = placed(footprint, 3, second, {})
    assert third == table("stst", ["r"] * 4, "ustuts")
    # Back again: partitions move to their backups, shards to their earlier workers.
    assert placed(footprint, 1, third, {0: ["r"]}).owners == ("r",) * 4
    assert placed(footprint, 2, third, {0: ["r", "s"], 1: ["s"]}).workers == second.workers


def test_previous_workers_get_their_shards_back_the_latest_first() -> None:
    now = table("rrrr", [""] * 4, "xxxxxx")
    workers = placed(
        Footprint(("r",), ("s",)), 1, now, {0: ["r", "s"], 1: ["s", "r"], 2: ["gone"]}
    ).workers
    assert workers[:2] == ("s", "r")
    assert Counter(workers) == {"r": 3, "s": 3}


def test_the_longest_running_half_serves_at_most_one_node_per_partition() -> None:
    assert may_serve(Footprint((), tuple("abcde")), 2, 8) == ("a", "b", "c")
    assert may_serve(Footprint((), tuple("abcdefgh")), 2, 2) == ("a", "b")
    assert may_serve(Footprint((), ("a",)), 2, 2) == ("a",)


@given(
    st.integers(0, 3),
    st.integers(0, 8),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 10),
    st.integers(1, 20),
    st.data(),
)
def test_every_stage_uses_the_right_nodes(
    reliable: int, transient: int, stage: int, partitions: int, shards: int, data: st.DataObject
) -> None:
    names = (
        [f"r{number}" for number in range(reliable)],
        [f"t{number}" for number in range(transient)],
    )
    footprint = Footprint(tuple(names[0]), tuple(names[1]))
    if not reliable:
        stage = 3
    if not reliable and not transient:
        return
    any_node = st.sampled_from(["", "gone", *names[0], *names[1]])
    owners, backups, workers = (
        tuple(data.draw(st.lists(any_node, min_size=count, max_size=count)))
        for count in (partitions, partitions, shards)
    )
    found = placed(footprint, stage, Table(3, owners, backups, workers), {})
    serving = may_serve(footprint, stage, partitions)
    working = (
        footprint.transient
        if stage == 3 and transient
        else footprint.reliable + footprint.transient
    )
    assert set(found.owners) <= set(serving)
    assert set(found.workers) <= set(working)
    work = Counter(found.workers)
    servers, others = (
        [work[name] for name in working if (name in found.owners) is serves]
        for serves in (True, False)
    )
    assert max(work.values()) - min(work[name] for name in working) <= 1
    # Where some have one shard more, those are servers, as far as there are any.
    assert not (servers and others) or min(servers) >= max(others)
    copied = stage > 1 and reliable
    assert set(found.backups) <= (set(footprint.reliable) if copied else {""})
    assert placed(footprint, stage, found, {}) == found

"""Changes in progress, by hand: each is requested once, confirmed once, and sent to all nodes
once."""

from __future__ import annotations

import pytest

from agileml.core.members import Members, NodePhase
from agileml.core.planned_changes import PREVIOUS_WORKERS, VERSIONS_PER_EPOCH, Assignment
from agileml.errors import InvalidTransition
from agileml.protocol.actions import Send
from agileml.protocol.messages import GiveShard, Move, Table

NOW = Table(4, ("r", "r"), ("", ""), ("r", "t", "t"))


def members(leaving: str = "") -> Members:
    nodes = Members()
    for name in ("r", "s", "t", "u"):
        nodes.join(name, name in "rs", 0.0).phase = (
            NodePhase.LEAVING if name == leaving else NodePhase.ACTIVE
        )
        nodes[name].routed = 4
    return nodes


def made() -> Assignment:
    return Assignment(NOW)


def test_a_difference_from_the_target_is_requested_once() -> None:
    assigned = made()
    desired = Table(4, ("t", "r"), ("r", ""), ("r", "t", "u"))
    # The reliable node that served the partition keeps a copy of it.
    assert list(assigned.move_towards(desired, members(), 9)) == [
        Send("r", Move(9, 0, "t", "r")),
        Send("t", GiveShard(9, 2, "u", now=False)),
    ]
    assert list(assigned.move_towards(desired, members(), 9)) == []
    assert assigned.table == NOW
    assert assigned.take_new_routes() is None


def test_backups_change_only_after_all_moves() -> None:
    # Otherwise the owner of partition 1 could be asked to hand it over before it knows of the new
    # backup, which would wait forever for patches.
    assigned = Assignment(Table(4, ("t", "t"), ("r", "r"), ()))
    desired = Table(4, ("u", "t"), ("r", "s"), ())
    assert list(assigned.move_towards(desired, members(), 9)) == [Send("t", Move(9, 0, "u", "r"))]
    assert assigned.table.backups == ("r", "r")
    assert list(assigned.move_towards(Table(4, ("u", "u"), ("r", "s"), ()), members(), 9)) == [
        Send("t", Move(9, 1, "u", "r"))
    ]
    for partition in range(2):
        assigned.partition_arrived(partition, "u")
    assert list(assigned.move_towards(Table(4, ("u", "u"), ("r", "s"), ()), members(), 9)) == []
    assert assigned.take_new_routes() == assigned.table
    assert assigned.table.backups == ("r", "s")


def test_a_leaving_node_gives_its_shards_at_once() -> None:
    assigned = made()
    desired = Table(4, ("r", "r"), ("", ""), ("r", "u", "u"))
    sent = list(assigned.move_towards(desired, members(leaving="t"), 9))
    assert sent == [Send("t", GiveShard(9, shard, "u", now=True)) for shard in (1, 2)]


def test_a_warning_expedites_promised_shards() -> None:
    assigned = made()
    list(assigned.move_towards(Table(4, ("r", "r"), ("", ""), ("u", "u", "t")), members(), 9))
    assert list(assigned.expedite("t", 9)) == [Send("t", GiveShard(9, 1, "u", now=True))]


def test_routes_are_sent_once_after_the_last_move() -> None:
    assigned = made()
    list(assigned.move_towards(Table(4, ("t", "u"), ("r", "r"), NOW.workers), members(), 9))
    assert assigned.partition_arrived(0, "t") == Move(9, 0, "t", "r")
    assert assigned.take_new_routes() is None
    assert assigned.partition_arrived(1, "u") == Move(9, 1, "u", "r")
    assert assigned.take_new_routes() == Table(6, ("t", "u"), ("r", "r"), NOW.workers)
    assert assigned.take_new_routes() is None


def test_the_previous_worker_of_a_shard_is_remembered() -> None:
    assigned = made()
    list(assigned.move_towards(Table(4, ("r", "r"), ("", ""), ("r", "t", "u")), members(), 9))
    assigned.shard_arrived(2, "u")
    assert assigned.table.workers == ("r", "t", "u")
    assert assigned.previous == {2: ["t"]}
    # Shards need no new routes: only their workers use them.
    assert assigned.take_new_routes() is None


def test_a_new_backup_needs_no_move() -> None:
    assigned = made()
    assert (
        list(assigned.move_towards(Table(4, ("r", "r"), ("s", "s"), NOW.workers), members(), 9))
        == []
    )
    assert assigned.take_new_routes() == Table(6, ("r", "r"), ("s", "s"), NOW.workers)


@pytest.mark.parametrize("node", ["r", "u"])
def test_an_arrival_that_was_not_requested_is_refused(node: str) -> None:
    assigned = made()
    list(assigned.move_towards(Table(4, ("t", "r"), ("", ""), ("t", "t", "t")), members(), 9))
    with pytest.raises(
        InvalidTransition, match=f"{node} received partition 0, which was not moving there"
    ):
        assigned.partition_arrived(0, node)
    with pytest.raises(InvalidTransition, match=f"{node} received partition 1"):
        assigned.partition_arrived(1, node)
    with pytest.raises(
        InvalidTransition, match=f"{node} received shard 0, which was not moving there"
    ):
        assigned.shard_arrived(0, node)


def test_a_node_is_free_when_it_holds_and_expects_nothing_and_all_know() -> None:
    assigned, nodes = made(), members(leaving="u")
    assert assigned.is_free("u", nodes)
    assert not assigned.is_free("t", nodes)
    list(assigned.move_towards(Table(4, ("u", "r"), ("", ""), NOW.workers), nodes, 9))
    assert not assigned.is_free("u", nodes)
    assigned = made()
    assigned.giving[1] = "u"
    assert not assigned.is_free("u", nodes)
    assigned = made()
    nodes["s"].routed = 3
    assert not assigned.is_free("u", nodes)


def test_a_reset_forgets_moves_in_progress() -> None:
    assigned = made()
    list(assigned.move_towards(Table(4, ("t", "u"), ("r", "r"), ("u", "u", "u")), members(), 9))
    assigned.reset(Table(4, ("s", "s"), ("", ""), ("s", "s", "s")), 1)
    assert (assigned.moving, assigned.giving) == ({}, {})
    assert assigned.table == Table(VERSIONS_PER_EPOCH, ("s", "s"), ("", ""), ("s", "s", "s"))
    assert assigned.previous == {0: ["r"], 1: ["t"], 2: ["t"]}


def test_only_the_latest_workers_of_a_shard_are_remembered() -> None:
    assigned = made()
    for number in range(3 * PREVIOUS_WORKERS):
        assigned.reset(Table(4, ("r", "r"), ("", ""), (f"t{number}", "t", "t")), number)
    assigned.reset(NOW, 3 * PREVIOUS_WORKERS)
    assert assigned.previous[0] == [
        f"t{number}" for number in range(2 * PREVIOUS_WORKERS, 3 * PREVIOUS_WORKERS)
    ]
    assert assigned.previous[1] == ["t"]

"""The separation of epochs, and the end of a node, by hand."""

from __future__ import annotations

import pytest

from agileml.errors import InvalidTransition
from agileml.params.layout import Layout
from agileml.protocol.actions import CONTROLLER, Action, Exit, Send
from agileml.protocol.messages import (
    Drain,
    Drained,
    EndOfLife,
    EndOfLifeSeen,
    Enter,
    Leave,
    Move,
    Pull,
    Recover,
    Restored,
    Route,
    Routed,
    Saved,
    Snapshot,
    Table,
    Tally,
    Version,
)
from agileml.roles.node import JobSettings, Node, NodeState
from agileml.trainer import initial_model, plan_of
from tests.agileml.toys import Decades

TRAINER = Decades((4,) * 2)
SHARDS = TRAINER.shards()
LAYOUT = Layout.cut(initial_model(TRAINER, 0), 2)
MINE = Table(10, ("n", "n"), ("", ""), ("w", "w"))
NOT_MINE = Table(20, ("m", "m"), ("", ""), ("w", "w"))


def node() -> Node:
    return Node("n", TRAINER, SHARDS, plan_of(TRAINER, SHARDS), JobSettings(partitions=2), LAYOUT)


def recover(epoch: int, table: Table = MINE) -> Recover:
    return Recover(epoch, 0, table, ("init", "init"), 9)


def messages_of(actions: list[Action], kind: type) -> list[tuple[str, object]]:
    return [
        (one.to, one.message)
        for one in actions
        if isinstance(one, Send) and isinstance(one.message, kind)
    ]


def test_messages_of_earlier_epochs_are_dropped_and_of_later_ones_kept() -> None:
    one = node()
    one.handle(recover(2))
    assert one.handle(Pull(1, "w", 0, 0)) == []
    assert one.handle(Pull(3, "w", 0, 0)) == []
    answered = one.handle(recover(3))
    assert [to for to, _ in messages_of(answered, Snapshot)] == ["w"]
    assert messages_of(answered, Restored) == [(CONTROLLER, Restored("n", 3))]


def test_messages_of_a_skipped_epoch_are_dropped() -> None:
    one = node()
    assert one.handle(Pull(3, "w", 0, 0)) == []
    assert messages_of(one.handle(recover(4)), Snapshot) == []


def test_a_node_that_enters_an_epoch_handles_its_early_messages() -> None:
    one = node()
    assert one.handle(Route(3, Table(21, ("m", "m"), ("", ""), ("w", "w")))) == []
    actions = one.handle(Enter(3, NOT_MINE, 9, 2))
    assert actions == [Send(CONTROLLER, Routed("n", 3, 21))]
    assert (one.epoch, one.server.stable, one.worker.context.limit) == (3, 2, 9)


def test_older_routes_do_not_replace_newer_ones() -> None:
    one = node()
    one.handle(recover(1, NOT_MINE))
    assert one.handle(Route(1, Table(5, ("x", "x"), ("", ""), ("w", "w")))) == [
        Send(CONTROLLER, Routed("n", 1, 5))
    ]
    assert one.worker.context.table == NOT_MINE


def test_a_node_is_drained_when_all_peers_have_answered_its_mark() -> None:
    one = node()
    one.handle(recover(1, NOT_MINE))
    marks = one.handle(Drain(1, ("m", "w")))
    assert marks == [Send("m", EndOfLife(1, "n")), Send("w", EndOfLife(1, "n"))]
    assert one.handle(EndOfLifeSeen(1, "m")) == []
    assert one.handle(EndOfLifeSeen(1, "w")) == [Send(CONTROLLER, Drained("n", 1))]
    assert one.handle(Leave("evicted")) == [Exit("evicted")]


def test_a_message_forwarded_while_draining_needs_another_round() -> None:
    one = node()
    one.handle(recover(1))
    for partition in (0, 1):
        one.handle(Move(1, partition, "m", ""))
    one.handle(Drain(1, ("m",)))
    assert one.handle(Pull(1, "w", 0, 0)) == [Send("m", Pull(1, "w", 0, 0))]
    assert one.handle(EndOfLifeSeen(1, "m")) == [Send("m", EndOfLife(1, "n"))]
    assert one.handle(EndOfLifeSeen(1, "m")) == [Send(CONTROLLER, Drained("n", 1))]


def test_a_peer_that_leaves_first_is_not_awaited() -> None:
    one = node()
    one.handle(recover(1, NOT_MINE))
    one.handle(Drain(1, ("m", "w")))
    one.handle(EndOfLifeSeen(1, "m"))
    assert one.handle(Drain(1, ("m",))) == [Send(CONTROLLER, Drained("n", 1))]


def test_a_node_goes_through_its_states() -> None:
    one = node()
    assert state_of(one) is NodeState.OUTSIDE
    one.handle(Recover(1, 5, MINE, ("checkpoint", "checkpoint"), 9))
    assert state_of(one) is NodeState.RESTORING
    version = Version(5, Tally(0, 0), one.server.restoring.initial(0).state)
    one.take_version(1, 0, version)
    one.take_version(1, 1, version)
    assert state_of(one) is NodeState.ACTIVE
    # A version that comes again is ignored.
    assert one.take_version(1, 1, version) == []
    one.handle(Drain(1, ("m",)))
    assert state_of(one) is NodeState.DRAINING
    one.handle(recover(2))
    assert state_of(one) is NodeState.ACTIVE


def state_of(one: Node) -> NodeState:
    return one.state


def test_a_message_that_means_nothing_is_refused() -> None:
    one = node()
    one.handle(recover(1))
    with pytest.raises(InvalidTransition, match=r"n is ACTIVE and does not expect Enter\("):
        one.handle(Enter(1, MINE, 9, 0))


def test_a_mark_is_answered() -> None:
    one = node()
    one.handle(recover(1))
    assert one.handle(EndOfLife(1, "x")) == [Send("x", EndOfLifeSeen(1, "n"))]


def test_a_node_reports_what_it_holds_and_has_saved() -> None:
    one = node()
    one.handle(recover(4))
    hello = one.hello(reliable=True, code="abc")
    assert (hello.node, hello.reliable, hello.code, hello.epoch, hello.holds) == (
        "n",
        True,
        "abc",
        4,
        ((0, 0), (1, 0)),
    )
    assert one.confirm_saved(4, 1, 7) == [Send(CONTROLLER, Saved("n", 4, 1, 7))]


def test_a_checkpoint_read_for_an_earlier_epoch_is_ignored() -> None:
    one = node()
    one.handle(Recover(1, 5, MINE, ("checkpoint", "checkpoint"), 9))
    version = one.server.restoring.initial(0)
    one.handle(recover(2))
    assert one.take_version(1, 0, version) == []
    assert one.server.served[0].clock == 0

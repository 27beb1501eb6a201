"""Mailboxes: the order of messages, which of them wait, which are dropped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from agileml.params.deltas import RowDelta
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import (
    Collected,
    Leave,
    PartitionUpdate,
    Pull,
    Push,
    Tally,
    UpdateEntry,
    Version,
    Warned,
)
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.rendezvous import Directory, Rendezvous
from agileml.transport import (
    Connected,
    Endpoint,
    FrameLimits,
    Identity,
    Lost,
    Rejected,
    TransportSettings,
)
from agileml.transport.codec import Codec
from agileml.transport.handshake import Reason

SECRET = b"0123456789abcdef0123456789abcdef"


def received(*mailboxes: Mailbox, until: Callable[[list[object]], bool]) -> list[object]:
    """What the mailboxes receive, in turn, until `until` holds."""
    events: list[object] = []
    for _ in range(20_000):
        for each in mailboxes:
            events += each.receive(0.005)
        if until(events):
            return events
    raise AssertionError(f"only {events} came")


def word(text: str) -> Pull:
    """A message of one node to another."""
    return Pull(1, text, 0, 0)


def envelopes(events: list[object]) -> list[object]:
    return [event.message for event in events if isinstance(event, Envelope)]


def test_messages_stay_in_order_while_a_link_opens(mailbox: Callable[[str], Mailbox]) -> None:
    here, there = mailbox("t1"), mailbox("t2")
    sent, came = 0, list[object]()
    while len(came) < 40:
        # A message to itself arrives after the poll that may have opened the link, and before the
        # link is reported.
        here.send("t1", Leave("turn"))
        for event in here.receive(0.002):
            if isinstance(event, Envelope) and sent < 40:
                here.send("t2", word(str(sent)))
                sent += 1
        came += envelopes(list(there.receive(0.002)))
    assert came == [word(str(number)) for number in range(40)]


def test_nothing_is_lost_when_both_sides_connect_at_once(mailbox: Callable[[str], Mailbox]) -> None:
    one, two = mailbox("t1"), mailbox("t2")
    one.send("t2", word("t1"))
    two.send("t1", word("t2"))
    events = received(one, two, until=lambda events: len(envelopes(events)) == 2)
    assert sorted(map(str, envelopes(events))) == sorted(map(str, [word("t1"), word("t2")]))


def test_arrays_arrive(mailbox: Callable[[str], Mailbox]) -> None:
    one, two = mailbox("t1"), mailbox("t2")
    rows = RowDelta(np.array([1, 3], np.int32), np.arange(4, dtype=np.float32).reshape(2, 2))
    one.send(
        "t2",
        Push(
            1, "t1", 2, ((0, 0, 1),), (PartitionUpdate(5, (UpdateEntry(0, 0, [None, rows]),)),), -1
        ),
    )
    (push,) = envelopes(received(one, two, until=any_envelope))
    assert isinstance(push, Push)
    nothing, delta = push.parts[0].entries[0].delta
    assert nothing is None
    assert delta is not None
    np.testing.assert_array_equal(delta.values, rows.values, strict=True)


def any_envelope(events: list[object]) -> bool:
    return bool(envelopes(events))


def test_a_message_to_an_absent_process_is_dropped(mailbox: Callable[[str], Mailbox]) -> None:
    one = mailbox("t1")
    one.send("t2", word("old"))
    assert any(isinstance(event, Rejected) for event in received(one, until=bool))
    two = mailbox("t2")
    # Without the first message, the second may mean nothing there.
    one.send("t2", word("of the same epoch"))
    one.begin_epoch()
    one.send("t2", word("new"))
    assert envelopes(received(one, two, until=any_envelope)) == [word("new")]


def test_messages_for_a_lost_controller_are_dropped(mailbox: Callable[[str], Mailbox]) -> None:
    node = mailbox("t1")
    node.send(CONTROLLER, Warned("t1", 1.0))
    controller, connection = mailbox(CONTROLLER), ControllerConnection(node)
    connection.maintain(1e9)
    events = received(
        node,
        controller,
        until=lambda events: sum(isinstance(each, Connected) for each in events) == 2,
    )
    assert envelopes(events) == []
    node.send(CONTROLLER, Warned("t1", 2.0))
    assert envelopes(received(node, controller, until=any_envelope)) == [Warned("t1", 2.0)]


def test_the_controller_never_connects_to_nodes_and_waits_for_the_job_loop(
    mailbox: Callable[[str], Mailbox],
) -> None:
    controller, node = mailbox(CONTROLLER), mailbox("t1")
    controller.send("t1", Leave("not listening"))
    controller.send(JOB_LOOP, Leave("will listen later"))
    job_loop = mailbox(JOB_LOOP)
    ControllerConnection(job_loop).maintain(1e9)
    events = received(controller, node, job_loop, until=any_envelope)
    assert envelopes(events) == [Leave("will listen later")]


def test_the_connection_is_retried_after_growing_pauses(mailbox: Callable[[str], Mailbox]) -> None:
    connection = ControllerConnection(mailbox("t1"))
    pauses = []
    now = 0.0
    for _ in range(8):
        assert not connection.handle(Rejected(CONTROLLER, "", ""), now)
        pauses.append(connection.timeout(now, 10.0))
        now += pauses[-1]
    assert pauses == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5])
    assert not connection.handle(Lost("t2", ""), now)
    assert connection.handle(Connected(CONTROLLER, ""), now)


# -- peers whose queue is full ---------------------------------------------------------------------

TIGHT = TransportSettings(max_queued_bytes=1 << 20)
CUT = TransportSettings(FrameLimits(body_bytes=90_000), max_queued_bytes=1 << 18)
"""Messages are sent in buckets, and the queue takes only some of those of one message."""


def large(number: int, to: str = "") -> Push | Collected:
    """A message so large that the queue does not take two of them."""
    values = np.full(200_000, number, np.float32)
    if to == CONTROLLER:
        return Collected("t1", 1, 0, Version(number, Tally(0, 0), [values]))
    rows = RowDelta(None, values)
    return Push(1, "t1", number, (), (PartitionUpdate(0, (UpdateEntry(0, 0, [rows]),)),), -1)


def test_a_message_that_a_lost_link_cut_off_does_not_spoil_the_next(
    rendezvous: Rendezvous, mailbox: Callable[..., Mailbox]
) -> None:
    receiver = mailbox("t2", CUT)
    with closing(Mailbox(rendezvous, "t1", CUT)) as first:
        first.open()
        first.reach("t2")
        received(
            first,
            receiver,
            until=lambda events: sum(isinstance(event, Connected) for event in events) == 2,
        )
        first.send("t2", large(1))
    second = mailbox("t1", CUT)
    second.send("t2", large(2))
    (push,) = envelopes(received(receiver, second, until=any_envelope))
    assert isinstance(push, Push)
    assert push.clock == 2


def test_the_controller_drops_a_node_that_reads_nothing_and_goes_on(
    mailbox: Callable[..., Mailbox],
) -> None:
    controller, deaf, node = mailbox(CONTROLLER, TIGHT), mailbox("t1"), mailbox("t2")
    for one in (deaf, node):
        one.reach(CONTROLLER)
    received(
        controller,
        deaf,
        node,
        until=lambda events: sum(isinstance(event, Connected) for event in events) == 4,
    )
    for number in range(20):
        controller.send("t1", large(number))
    (lost,) = [event for event in received(controller, until=bool) if isinstance(event, Lost)]
    assert (lost.peer, lost.reason.startswith("it does not read its messages")) == ("t1", True)
    controller.send("t2", Leave("still here"))
    assert envelopes(received(controller, node, until=any_envelope)) == [Leave("still here")]


def test_a_peer_that_sends_an_invalid_message_is_dropped(
    rendezvous: Rendezvous, mailbox: Callable[[str], Mailbox]
) -> None:
    one = mailbox("t1")
    with closing(Endpoint(Identity("t2"), SECRET)) as other:
        other.connect("t1", rendezvous.addresses("t1")[0])
        while not other.peers:
            other.poll(0.005)
            list(one.receive(0.005))
        other.send("t1", "Push", b"nonsense")
        other.send("t1", *Codec([Pull]).encode(word("t2")))
        other.poll(0.005)
        events = received(
            one, until=lambda events: any(isinstance(event, Lost) for event in events)
        )
    assert all(not isinstance(event, Envelope) or event.message == word("t2") for event in events)


# -- who may say what ------------------------------------------------------------------------------


def test_a_node_that_the_job_goes_on_without_is_shut_out_by_the_others(
    mailbox: Callable[[str], Mailbox],
) -> None:
    controller, node, gone = mailbox(CONTROLLER), mailbox("t1"), mailbox("t2")
    node.reach(CONTROLLER)
    gone.send("t1", word("before"))
    received(controller, node, gone, until=any_envelope)
    controller.send("t1", Directory({"t2": ()}))
    events = received(
        controller, node, gone, until=lambda events: any(isinstance(each, Lost) for each in events)
    )
    assert {event.peer for event in events if isinstance(event, Lost)} <= {"t1", "t2"}
    assert node.refusal(Identity("t2")) is Reason.SHUT_OUT

"""Who may say what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from agileml.core.events import NodeLost, StopJob
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import (
    DoThis,
    EndOfLife,
    Heartbeat,
    Leave,
    Recover,
    Table,
    Warned,
)
from agileml.runtime.mailbox import Mailbox, codec
from agileml.runtime.output import Printed
from agileml.runtime.rendezvous import Directory, Rendezvous
from agileml.runtime.results import Acknowledged
from agileml.runtime.rights import MISCONDUCT
from agileml.transport import (
    Connected,
    Endpoint,
    Identity,
    Lost,
)
from agileml.transport.handshake import Reason
from tests.agileml.runtime.test_mailbox import SECRET, received


@pytest.mark.parametrize(
    ("sender", "receiver", "message"),
    [
        ("t1", "t2", Leave("go")),
        ("t1", "t2", Recover(9, 0, Table(0, (), (), ()), (), 0)),
        ("t1", "t2", EndOfLife(1, "t3")),
        ("t1", "t2", DoThis(1, "t3", 1, 1, ())),
        ("t1", CONTROLLER, Warned("t2", 1.0)),
        ("t1", CONTROLLER, Heartbeat("t1")),
        ("t1", CONTROLLER, NodeLost("t2", "it is not")),
        ("t1", CONTROLLER, StopJob()),
        ("t1", CONTROLLER, Acknowledged(3)),
        ("t1", CONTROLLER, Directory({"t2": ("tcp:10.0.0.1:1",)})),
        ("t1@heartbeat", CONTROLLER, Heartbeat("t2")),
        ("t1@heartbeat", CONTROLLER, Printed("t2", "words")),
        ("t1", CONTROLLER, Printed("t1", "words")),
        ("blobs/t1/a", CONTROLLER, Directory({"blobs/t1/a": ("tcp:10.0.0.1:1",)})),
    ],
    ids=str,
)
def test_who_says_what_is_not_for_it_to_say_is_shut_out(
    rendezvous: Rendezvous,
    mailbox: Callable[[str], Mailbox],
    sender: str,
    receiver: str,
    message: object,
) -> None:
    there = mailbox(receiver)
    with closing(Endpoint(Identity(sender), SECRET)) as here:
        linked(here, rendezvous, there)
        here.send(receiver, *codec().encode(message))
        here.poll(0.005)
        (lost,) = [
            event for event in received(there, until=bool) if not isinstance(event, Connected)
        ]
        assert isinstance(lost, Lost)
        assert lost.reason.startswith(
            f"{MISCONDUCT} {type(message).__name__}, which is not for it to say"
        )
        # The node has no more links, under whichever of its names.
        assert there.refusal(Identity("t1@heartbeat")) is Reason.SHUT_OUT
        assert there.refusal(Identity("t3")) is None


def linked(here: Endpoint, rendezvous: Rendezvous, there: Mailbox) -> None:
    here.connect(there.name, rendezvous.addresses(there.name)[0])
    while not here.peers:
        here.poll(0.005)
        list(there.receive(0.005))

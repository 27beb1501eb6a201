"""Messages that find a full queue, or whose link is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import (
    Collected,
    Push,
)
from agileml.runtime.mailbox import Mailbox, codec
from agileml.runtime.outbox import Outbox
from agileml.transport import (
    Connected,
    Endpoint,
    FrameLimits,
    Lost,
    QueueFull,
    TransportSettings,
)
from tests.agileml.runtime.test_mailbox import (
    CUT,
    TIGHT,
    any_envelope,
    envelopes,
    large,
    received,
    word,
)


def test_after_a_message_was_lost_with_a_link_none_follows_in_that_epoch(
    mailbox: Callable[[str], Mailbox],
) -> None:
    """It could be about something that the lost node was to tell; a recovery is coming."""
    one, two = mailbox("t1"), mailbox("t2")
    one.send("t2", word("first"))
    received(one, two, until=any_envelope)
    two._endpoint.drop("t1", "it was cut")
    received(one, two, until=lambda events: any(isinstance(event, Lost) for event in events))
    two.send("t1", word("in between"))
    one.send("t2", word("in between"))
    for each in (one, two):
        each.begin_epoch()
    one.send("t2", word("after"))
    assert envelopes(received(one, two, until=any_envelope)) == [word("after")]


@pytest.mark.parametrize("settings", [TIGHT, CUT], ids=["frames", "buckets"])
@pytest.mark.parametrize(
    ("sender", "receiver"), [("t1", "t2"), (CONTROLLER, JOB_LOOP), ("t1", CONTROLLER)]
)
def test_messages_that_find_a_full_queue_wait_and_arrive_in_order(
    mailbox: Callable[..., Mailbox], sender: str, receiver: str, settings: TransportSettings
) -> None:
    one, two = mailbox(sender, settings), mailbox(receiver, settings)
    (two if sender == CONTROLLER else one).reach(receiver if sender != CONTROLLER else sender)
    received(
        one, two, until=lambda events: sum(isinstance(event, Connected) for event in events) == 2
    )
    for number in range(20):
        one.send(receiver, large(number, receiver))
    came: list[int] = []
    for _ in range(50_000):
        assert not any(isinstance(event, Lost) for event in one.receive(0.002))
        for message in envelopes(list(two.receive(0.002))):
            came += [message.clock] if isinstance(message, Push) else []
            came += [message.version.clock] if isinstance(message, Collected) else []
        if len(came) == 20:
            break
    assert came == list(range(20))


def test_finish_sending_waits_for_messages_that_found_a_full_queue(
    mailbox: Callable[..., Mailbox],
) -> None:
    controller, job_loop = mailbox(CONTROLLER, CUT), mailbox(JOB_LOOP, CUT)
    job_loop.reach(CONTROLLER)
    received(
        controller,
        job_loop,
        until=lambda events: sum(isinstance(event, Connected) for event in events) == 2,
    )
    for number in range(10):
        controller.send(JOB_LOOP, large(number))
    came: list[object] = []

    def read() -> None:
        while len(came) < 10:
            came.extend(envelopes(list(job_loop.receive(0.005))))

    reader = threading.Thread(target=read)
    reader.start()
    controller.finish_sending(JOB_LOOP)
    assert not controller._endpoint._link(JOB_LOOP).outgoing
    assert not controller._outbox.waits(JOB_LOOP)
    reader.join()


class Full:
    """An endpoint whose only link takes no more."""

    peers = ("t2",)

    def send(self, to: str, *_: object) -> None:
        """Refuses every frame."""
        raise QueueFull(f"{to} reads nothing")


def test_a_message_that_is_tried_again_is_not_wrapped_anew() -> None:
    """A wrapper for each try, one in the other, ends the process when they are called at last."""
    outbox = Outbox("t1", cast(Endpoint, Full()), codec(), FrameLimits())
    outbox.send("t2", word("later"))
    waiting = outbox._waiting["t2"]
    for _ in range(3):
        outbox.send_waiting()
    assert outbox._waiting["t2"] == waiting

"""The controller client, with a controller played by the test: what it repeats to a restarted one,
and what not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.core.events import Iteration, NodeLost
from agileml.policies.stage import ClockSums
from agileml.protocol.actions import CONTROLLER, JOB_LOOP
from agileml.protocol.messages import Warned
from agileml.runtime import controller_client
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.rendezvous import FolderRendezvous, Rendezvous
from agileml.runtime.results import Acknowledged, Clocks, RepeatedIteration


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield FolderRendezvous(Path(folder), b"0123456789abcdef0123456789abcdef")


@pytest.fixture
def client(rendezvous: Rendezvous) -> Iterator[ControllerClient]:
    one = ControllerClient(rendezvous, Clocks(lambda _: None), lambda _: None)
    yield one
    one.close()


def reported(rendezvous: Rendezvous, client: ControllerClient, *, until: str) -> list[str]:
    """The machines that a controller started now is told of, up to `until`."""
    mailbox, names = Mailbox(rendezvous, CONTROLLER), list[str]()
    mailbox.open()
    for _ in range(30_000):
        assert list(client.listen(0.002)) == []
        for event in mailbox.receive(0.002):
            if isinstance(event, Envelope) and isinstance(event.message, NodeLost | Warned):
                names.append(event.message.node)
        if until in names:
            break
    mailbox.close()
    # The client has to notice that this controller is gone.
    for _ in range(50):
        list(client.listen(0.002))
    return names


def test_every_controller_is_told_of_lost_and_warned_machines(
    rendezvous: Rendezvous, client: ControllerClient
) -> None:
    client.lose("t1")
    client.warn("t9", 1000.0)
    assert reported(rendezvous, client, until="t9") == ["t1", "t9"]
    client.lose("t2")
    client.lose("t9")
    assert reported(rendezvous, client, until="t9") == ["t1", "t2", "t9"]


def test_a_loss_that_a_controller_has_known_for_long_is_not_repeated(
    rendezvous: Rendezvous, client: ControllerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_client, "REPEAT_LOST_SECONDS", 0.0)
    client.lose("t1")
    assert reported(rendezvous, client, until="t1") == ["t1"]
    # No controller was running when this one was lost.
    client.lose("t2")
    assert reported(rendezvous, client, until="t2") == ["t2"]


def iteration(clock: int) -> Iteration:
    return Iteration(clock, 0.1, 1, 1, 0, ClockSums(), 0, (f"event {clock}",))


def test_clocks_are_acknowledged_to_a_new_controller_and_every_so_often(
    rendezvous: Rendezvous,
) -> None:
    client, mailbox, acknowledged = (
        ControllerClient(rendezvous, Clocks(lambda _: None, 5), lambda _: None),
        Mailbox(rendezvous, CONTROLLER),
        list[int](),
    )
    mailbox.open()
    for clock in range(6, 2 * controller_client.ACKNOWLEDGE_EVERY + 5):
        mailbox.send(JOB_LOOP, iteration(clock))
    while len(acknowledged) < 3:
        list(client.listen(0.002))
        envelopes = [
            event.message for event in mailbox.receive(0.002) if isinstance(event, Envelope)
        ]
        acknowledged += [
            message.clock for message in envelopes if isinstance(message, Acknowledged)
        ]
    client.close()
    mailbox.close()
    assert acknowledged == [
        5,
        controller_client.ACKNOWLEDGE_EVERY,
        2 * controller_client.ACKNOWLEDGE_EVERY,
    ]


def test_a_repeated_clock_is_passed_on_once(rendezvous: Rendezvous) -> None:
    log: list[Iteration] = []
    client, mailbox, received = (
        ControllerClient(rendezvous, Clocks(log.append), lambda _: None),
        Mailbox(rendezvous, CONTROLLER),
        list[int](),
    )
    mailbox.open()
    # An earlier controller finished 1 and 2, and 2 never arrived; this one finishes 2 again by
    # itself.
    for message in (
        iteration(1),
        RepeatedIteration(iteration(1)),
        RepeatedIteration(iteration(2)),
        iteration(2),
        iteration(3),
    ):
        mailbox.send(JOB_LOOP, message)
    while 3 not in received:
        received += [one.clock for one in client.listen(0.002)]
        list(mailbox.receive(0.002))
    client.close()
    mailbox.close()
    assert received == [1, 2, 3]
    assert [one.clock for one in log] == [1, 2, 3]
    # The second report of a clock may contain other events.
    assert [one.events for one in log] == [("event 1",), ("event 2",), ("event 2", "event 3")]

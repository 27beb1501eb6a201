"""The provider's client, with a controller played by the test: what it says again, and what it need not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.core.events import Iteration, NodeLost
from agileml.policies.policy import ClockSums
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Warned
from agileml.runtime import controller_client
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.mailbox import PROVIDER, Again, Envelope, Heard, Mailbox
from agileml.runtime.rendezvous import FolderRendezvous, Rendezvous
from agileml.runtime.results import Clocks


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield FolderRendezvous(Path(folder), b"0123456789abcdef0123456789abcdef")


@pytest.fixture
def provider(rendezvous: Rendezvous) -> Iterator[ControllerClient]:
    one = ControllerClient(rendezvous, Clocks(lambda _: None))
    yield one
    one.close()


def heard(rendezvous: Rendezvous, provider: ControllerClient, *, until: str) -> list[str]:
    """Whom a controller that is started now hears of, up to one of them."""
    mailbox, names = Mailbox(rendezvous, CONTROLLER), list[str]()
    mailbox.open()
    for _ in range(1000):
        assert list(provider.listen(0.002)) == []
        for event in mailbox.receive(0.002):
            if isinstance(event, Envelope) and isinstance(event.message, NodeLost | Warned):
                names.append(event.message.node)
        if until in names:
            break
    mailbox.close()
    # That it is gone has to be seen, too.
    for _ in range(50):
        list(provider.listen(0.002))
    return names


def test_every_controller_is_told_who_is_gone_and_who_will_be_taken(
    rendezvous: Rendezvous, provider: ControllerClient
) -> None:
    provider.lose("t1")
    provider.warn("t9", 1000.0)
    assert heard(rendezvous, provider, until="t9") == ["t1", "t9"]
    provider.lose("t2")
    provider.lose("t9")
    assert heard(rendezvous, provider, until="t9") == ["t1", "t2", "t9"]


def test_what_a_controller_was_told_long_ago_need_not_be_said_again(
    rendezvous: Rendezvous, provider: ControllerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_client, "KNOWN_LOST", 0.0)
    provider.lose("t1")
    assert heard(rendezvous, provider, until="t1") == ["t1"]
    # Nobody was there to be told of this one.
    provider.lose("t2")
    assert heard(rendezvous, provider, until="t2") == ["t2"]


def iteration(clock: int) -> Iteration:
    return Iteration(clock, 0.1, 1, 1, 0, ClockSums(), 0, (f"event {clock}",))


def test_a_controller_is_told_what_was_heard_when_it_comes_and_every_so_often(rendezvous: Rendezvous) -> None:
    provider, mailbox, heard = (
        ControllerClient(rendezvous, Clocks(lambda _: None, 5)),
        Mailbox(rendezvous, CONTROLLER),
        list[int](),
    )
    mailbox.open()
    for clock in range(6, 2 * controller_client.HEARD_EVERY + 5):
        mailbox.send(PROVIDER, iteration(clock))
    while len(heard) < 3:
        list(provider.listen(0.002))
        envelopes = [event.message for event in mailbox.receive(0.002) if isinstance(event, Envelope)]
        heard += [message.clock for message in envelopes if isinstance(message, Heard)]
    provider.close()
    mailbox.close()
    assert heard == [5, controller_client.HEARD_EVERY, 2 * controller_client.HEARD_EVERY]


def test_what_was_said_before_and_not_heard_is_passed_on_once(rendezvous: Rendezvous) -> None:
    log: list[Iteration] = []
    provider, mailbox, came = (
        ControllerClient(rendezvous, Clocks(log.append)),
        Mailbox(rendezvous, CONTROLLER),
        list[int](),
    )
    mailbox.open()
    # The controller before this one said 1 and 2, the latter to nobody; this one tells of 2 once more by itself.
    for message in (iteration(1), Again(iteration(1)), Again(iteration(2)), iteration(2), iteration(3)):
        mailbox.send(PROVIDER, message)
    while 3 not in came:
        came += [one.clock for one in provider.listen(0.002)]
        list(mailbox.receive(0.002))
    provider.close()
    mailbox.close()
    assert came == [1, 2, 3]
    assert [one.clock for one in log] == [1, 2, 3]
    # Of a clock that is told twice the second account may hold other events.
    assert [one.events for one in log] == [("event 1",), ("event 2",), ("event 2", "event 3")]

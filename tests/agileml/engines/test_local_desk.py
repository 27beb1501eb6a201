"""The provider's desk, with a controller played by the test: what it says again, and what it need not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agileml.actions import CONTROLLER
from agileml.core.events import Iteration, Lost
from agileml.core.progress import Clocked
from agileml.engines.local import desk
from agileml.engines.local.desk import Desk
from agileml.engines.local.post import PROVIDER, Again, Heard, Letter, Office, Post
from agileml.engines.results import Clocks
from agileml.messages import Warned


@pytest.fixture
def office() -> Iterator[Office]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Office(Path(folder), b"0123456789abcdef0123456789abcdef")


@pytest.fixture
def provider(office: Office) -> Iterator[Desk]:
    one = Desk(office, Clocks(lambda _: None))
    yield one
    one.close()


def heard(office: Office, provider: Desk, *, until: str) -> list[str]:
    """Whom a controller that is started now hears of, up to one of them."""
    post, names = Post(office, CONTROLLER), list[str]()
    post.open()
    for _ in range(1000):
        assert list(provider.listen(0.002)) == []
        for event in post.receive(0.002):
            if isinstance(event, Letter) and isinstance(event.message, Lost | Warned):
                names.append(event.message.node)
        if until in names:
            break
    post.close()
    # That it is gone has to be seen, too.
    for _ in range(50):
        list(provider.listen(0.002))
    return names


def test_every_controller_is_told_who_is_gone_and_who_will_be_taken(office: Office, provider: Desk) -> None:
    provider.lose("t1")
    provider.warn("t9", 1000.0)
    assert heard(office, provider, until="t9") == ["t1", "t9"]
    provider.lose("t2")
    provider.lose("t9")
    assert heard(office, provider, until="t9") == ["t1", "t2", "t9"]


def test_what_a_controller_was_told_long_ago_need_not_be_said_again(
    office: Office, provider: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "KNOWN_LOST", 0.0)
    provider.lose("t1")
    assert heard(office, provider, until="t1") == ["t1"]
    # Nobody was there to be told of this one.
    provider.lose("t2")
    assert heard(office, provider, until="t2") == ["t2"]


def iteration(clock: int) -> Iteration:
    return Iteration(clock, 0.1, 1, 1, 0, Clocked(), 0, (f"event {clock}",))


def test_a_controller_is_told_what_was_heard_when_it_comes_and_every_so_often(office: Office) -> None:
    provider, post, heard = Desk(office, Clocks(lambda _: None, 5)), Post(office, CONTROLLER), list[int]()
    post.open()
    for clock in range(6, 2 * desk.HEARD_EVERY + 5):
        post.send(PROVIDER, iteration(clock))
    while len(heard) < 3:
        list(provider.listen(0.002))
        letters = [event.message for event in post.receive(0.002) if isinstance(event, Letter)]
        heard += [message.clock for message in letters if isinstance(message, Heard)]
    provider.close()
    post.close()
    assert heard == [5, desk.HEARD_EVERY, 2 * desk.HEARD_EVERY]


def test_what_was_said_before_and_not_heard_is_passed_on_once(office: Office) -> None:
    log: list[Iteration] = []
    provider, post, came = Desk(office, Clocks(log.append)), Post(office, CONTROLLER), list[int]()
    post.open()
    # The controller before this one said 1 and 2, the latter to nobody; this one tells of 2 once more by itself.
    for message in (iteration(1), Again(iteration(1)), Again(iteration(2)), iteration(2), iteration(3)):
        post.send(PROVIDER, message)
    while 3 not in came:
        came += [one.clock for one in provider.listen(0.002)]
        list(post.receive(0.002))
    provider.close()
    post.close()
    assert came == [1, 2, 3]
    assert [one.clock for one in log] == [1, 2, 3]
    # Of a clock that is told twice the second account may hold other events.
    assert [one.events for one in log] == [("event 1",), ("event 2",), ("event 2", "event 3")]

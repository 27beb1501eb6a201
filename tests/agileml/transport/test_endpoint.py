"""Links between endpoints: order, bounds, marks, waking, crossing connections, ends."""

from __future__ import annotations

import random
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agileml.transport import (
    BadAddress,
    BadSecret,
    Connected,
    Endpoint,
    FrameLimits,
    Identity,
    Lost,
    NotConnected,
    QueueFull,
    Received,
    Rejected,
    TcpAddress,
    TransportSettings,
    UnixAddress,
    Unsendable,
)
from tests.agileml.transport.links import SECRET, Clock, Meeting


@pytest.fixture(params=["unix", "tcp"])
def linked(request: pytest.FixtureRequest, meeting: Meeting) -> tuple[Endpoint, Endpoint]:
    a, b = meeting.add("a"), meeting.add("b")
    b.connect(
        "a",
        a.listen(meeting.address("a") if request.param == "unix" else TcpAddress("127.0.0.1", 0)),
    )
    meeting.until(lambda: "b" in a.peers and "a" in b.peers)
    return a, b


def test_both_sides_report_the_link_once(
    linked: tuple[Endpoint, Endpoint], meeting: Meeting
) -> None:
    a, b = linked
    meeting.until(lambda: bool(meeting.of("a", Connected)) and bool(meeting.of("b", Connected)))
    b.connect("a", UnixAddress("/nowhere"))
    meeting.turn()
    assert meeting.events == {"a": [Connected("b", "node")], "b": [Connected("a", "node")]}
    assert a.peers | b.peers == {"a", "b"}


def test_messages_keep_their_order_both_ways(
    linked: tuple[Endpoint, Endpoint], meeting: Meeting
) -> None:
    rng = np.random.default_rng(5)
    sent: dict[str, list[Any]] = {"a": [], "b": []}
    for number in range(120):
        for name, endpoint, peer in (("a", linked[0], "b"), ("b", linked[1], "a")):
            arrays = [rng.random(int(10 ** rng.uniform(0, 5.3))) for _ in range(number % 3)]
            endpoint.send(peer, "step", b"%d" % number, arrays)
            sent[name].append(arrays)
        if number % 17 == 0:
            meeting.turn()
    meeting.until(lambda: all(len(meeting.of(name, Received)) == 120 for name in "ab"))
    for name, peer in (("a", "b"), ("b", "a")):
        for number, event in enumerate(meeting.of(name, Received)):
            assert (event.peer, event.kind, event.header) == (peer, "step", b"%d" % number)
            for here, there in zip(event.arrays, sent[peer][number], strict=True):
                assert (here == there).all()


def test_the_mark_says_when_arrays_may_be_changed_again(meeting: Meeting) -> None:
    _, b = meeting.pair()
    array = np.ones(8 << 20, np.uint8)
    small = b.send("a", "small")
    mark = b.send("a", "large", arrays=[array])
    assert b.sent("a") < small < mark
    assert len(b._link("a").outgoing) == mark - b.sent("a")
    # The other side does not read: the system's buffers fill, and the rest waits.
    assert not b.flush(0.05)
    assert small <= b.sent("a") < mark
    meeting.until(lambda: b.sent("a") == mark)
    assert not b._link("a").outgoing
    array[:] = 0
    meeting.until(lambda: len(meeting.of("a", Received)) == 2)
    assert meeting.of("a", Received)[1].arrays[0].all()


def test_flush_sends_everything_and_keeps_events_for_poll(meeting: Meeting) -> None:
    a, b = meeting.pair()
    a.send("b", "hello")
    assert a.flush(5)
    b.send("a", "x", arrays=[np.zeros(20 << 20, np.uint8)])
    reader = threading.Thread(target=lambda: meeting.events["a"].extend(a.poll(10)))
    reader.start()
    assert b.flush(10, "a")
    reader.join()
    assert [event.kind for event in b.poll(0) if isinstance(event, Received)] == ["hello"]
    assert b.flush(0)


def test_a_full_queue_refuses_messages_and_loses_none(meeting: Meeting) -> None:
    a, b = meeting.pair(TransportSettings(max_queued_bytes=3 << 20))
    piece = np.arange(1 << 20, dtype=np.uint8)
    # A frame larger than the limit passes while nothing else waits: else it could never be sent.
    b.send("a", "whole", b"0", [np.zeros(5 << 20, np.uint8)])
    with pytest.raises(
        QueueFull,
        match=r"piece to 'a': 5,242,\d+ bytes are queued, 1,048,\d+ more exceed the limit",
    ):
        b.send("a", "piece", b"1", [piece])
    sent = 1
    while sent < 12:
        try:
            b.send("a", "piece", b"%d" % sent, [piece])
            sent += 1
        except QueueFull:
            meeting.turn()
    meeting.until(lambda: len(meeting.of("a", Received)) == 12)
    assert [int(event.header) for event in meeting.of("a", Received)] == list(range(12))
    assert a.peers == {"b"}


def test_an_unsendable_message_leaves_the_link_intact(meeting: Meeting) -> None:
    _, b = meeting.pair(TransportSettings(limits=FrameLimits(body_bytes=1000)))
    for kind, header, arrays in (("k", b"", [np.zeros(2000)]), ("k", b"", [np.array([b])])):
        with pytest.raises(Unsendable):
            b.send("a", kind, header, arrays)
    assert not b._link("a").outgoing
    b.send("a", "fine")
    assert meeting.first("a", Received).kind == "fine"


def test_unknown_peers_are_named(meeting: Meeting) -> None:
    a = meeting.add("a")
    for action in (lambda: a.send("x", "k"), lambda: a.sent("x"), lambda: a.drop("x", "")):
        with pytest.raises(NotConnected, match="'x'"):
            action()
    with pytest.raises(BadAddress, match="itself"):
        a.connect("a", meeting.address("a"))


def test_a_lost_peer_is_reported_after_everything_it_sent(
    linked: tuple[Endpoint, Endpoint], meeting: Meeting
) -> None:
    a, b = linked
    meeting.first("a", Connected)
    for number in range(3):
        b.send("a", "last", b"%d" % number, [np.full(1000, number)])
    assert b.flush(10)
    b.close()
    del meeting.endpoints["b"]
    # A peer that writes to it now finds the connection broken before reading what had come.
    a.send("b", "late", b"", [np.zeros(3 << 20)])
    meeting.first("a", Lost)
    kinds = [type(event) for event in meeting.events["a"]]
    assert kinds == [Connected, Received, Received, Received, Lost]
    assert a.peers == frozenset()
    with pytest.raises(NotConnected):
        a.send("b", "k")


def test_a_dropped_peer_can_connect_again(meeting: Meeting) -> None:
    a, b = meeting.pair()
    a.drop("b", "it sent nonsense")
    assert meeting.first("a", Lost) == Lost("b", "it sent nonsense")
    assert meeting.first("b", Lost) == Lost("a", "it went away")
    b.connect("a", meeting.address("a"))
    meeting.until(lambda: len(meeting.of("a", Connected)) == len(meeting.of("b", Connected)) == 2)


def test_a_peer_that_reconnects_replaces_its_earlier_link(meeting: Meeting) -> None:
    a, b = meeting.pair()
    b.send("a", "from the first life")
    assert b.flush(5)
    again = Endpoint(Identity("b", "node", "1"), SECRET)
    meeting.endpoints["b2"], meeting.events["b2"] = again, []
    again.connect("a", meeting.address("a"))
    meeting.until(lambda: len(meeting.of("a", Connected)) == 2)
    kinds = [type(event) for event in meeting.events["a"]]
    assert kinds == [Connected, Received, Lost, Connected]
    meeting.first("b2", Connected)
    again.send("a", "from the second life")
    meeting.until(lambda: len(meeting.of("a", Received)) == 2)
    assert meeting.first("b", Lost)
    assert a.peers == {"b"}


@pytest.mark.parametrize("delay", range(12))
def test_two_processes_that_connect_to_each_other_at_once_get_one_link(
    meeting: Meeting, delay: int
) -> None:
    """`delay`: after how many turns of the one the other begins, so that the attempts cross at
    every step.
    """
    a, b = meeting.add("a"), meeting.add("b")
    first, second = (a, b) if delay % 2 else (b, a)
    places = {"a": a.listen(meeting.address("a")), "b": b.listen(meeting.address("b"))}
    first.connect(second.identity.name, places[second.identity.name])
    for turn in range(delay // 2):
        meeting.events[(a, b)[turn % 2].identity.name] += (a, b)[turn % 2].poll(0)
    second.connect(first.identity.name, places[first.identity.name])
    meeting.until(lambda: bool(meeting.of("a", Connected)) and bool(meeting.of("b", Connected)))
    a.send("b", "to b")
    b.send("a", "to a")
    meeting.until(lambda: bool(meeting.of("a", Received)) and bool(meeting.of("b", Received)))
    for _ in range(5):
        meeting.turn()
    assert [type(event) for event in meeting.events["a"]] == [Connected, Received]
    assert [type(event) for event in meeting.events["b"]] == [Connected, Received]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_random_connection_attempts_open_one_link_per_pair_and_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="link") as folder:
        meeting = Meeting(Path(folder))
        names = ["a", "b", "c", "d"]
        places = {name: meeting.listening(name) for name in names}
        steps = [(one, other) for one in names for other in names if one != other]
        rng.shuffle(steps)
        for one, other in steps:
            meeting.endpoints[one].connect(other, places[other])
            for _ in range(rng.randrange(4)):
                name = rng.choice(names)
                meeting.events[name] += meeting.endpoints[name].poll(0)
        meeting.until(lambda: all(len(meeting.of(name, Connected)) == 3 for name in names))
        for one, other in steps:
            meeting.endpoints[one].send(other, one)
        meeting.until(lambda: all(len(meeting.of(name, Received)) == 3 for name in names))
        for name in names:
            assert len(meeting.events[name]) == 6
        meeting.close()


def test_a_peer_that_announces_a_connection_and_does_not_make_it_is_reported(
    meeting: Meeting,
) -> None:
    """The smaller name refuses the crossing attempt, but its own never arrives."""
    clock = Clock()
    a, b = meeting.add("a", clock=clock), meeting.add("b", clock=clock)
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(str(meeting.folder / "silent"))
    silent.listen()
    a.connect("b", UnixAddress(str(meeting.folder / "silent")))
    b.connect("a", a.listen(meeting.address("a")))
    for _ in range(10):
        meeting.turn()
    assert meeting.events == {"a": [], "b": []}
    clock.passed += 5
    meeting.turn()
    silent.close()
    assert "no handshake within 5 s" in meeting.first("a", Rejected).reason
    assert (
        "it announced that it was connecting to us, but never did"
        in meeting.first("b", Rejected).reason
    )
    b.connect("a", meeting.address("a"))
    meeting.first("b", Connected)


def test_an_address_without_a_listener_is_reported(meeting: Meeting) -> None:
    a = meeting.add("a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    a.connect("nobody", UnixAddress(str(meeting.folder / "none")))
    a.connect("none", TcpAddress("127.0.0.1", port))
    a.connect("nowhere", TcpAddress("no..host", 1))
    meeting.until(lambda: len(meeting.of("a", Rejected)) == 3)
    told = {event.peer: event.reason for event in meeting.of("a", Rejected)}
    assert "No such file" in told["nobody"]
    assert "refused" in told["none"]
    assert "cannot resolve" in told["nowhere"]


def test_an_endpoint_refuses_a_short_secret() -> None:
    with pytest.raises(BadSecret):
        Endpoint(Identity("a"), b"short")


def test_memory_of_large_frames_is_reused(meeting: Meeting) -> None:
    _, b = meeting.pair()
    array = np.ones(1 << 20)
    places = set()
    for _ in range(6):
        b.send("a", "k", arrays=[array])
        meeting.events["a"].clear()
        places.add(meeting.first("a", Received).arrays[0].__array_interface__["data"][0])
    assert len(places) <= 2

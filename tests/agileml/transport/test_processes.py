"""Real processes on real sockets, which are really killed."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from agileml.transport import Address, Connected, Lost, Received, Rejected, TcpAddress
from agileml.transport.framing import Array
from tests.agileml.transport import peers
from tests.agileml.transport.links import Meeting


@pytest.fixture(params=["unix", "tcp"])
def place(request: pytest.FixtureRequest, meeting: Meeting) -> Address:
    """Where endpoint "a" listens."""
    return meeting.listening(
        "a", at=None if request.param == "unix" else TcpAddress("127.0.0.1", 0)
    )


def test_large_arrays_travel_between_processes_and_back(meeting: Meeting, place: Address) -> None:
    with peers.running(peers.echo, "p", str(place)):
        meeting.first("a", Connected)
        rng = np.random.default_rng(1)
        sent: list[list[Array]] = [
            [rng.random((3_000_000,), np.float32), rng.random((5, 7))] for _ in range(3)
        ]
        for number, arrays in enumerate(sent):
            meeting.endpoints["a"].send("p", "step", b"%d" % number, arrays)
        meeting.until(lambda: len(meeting.of("a", Received)) == 3)
    for number, event in enumerate(meeting.of("a", Received)):
        assert event.header == b"%d" % number
        for here, there in zip(event.arrays, sent[number], strict=True):
            assert (here == there + 1).all()


def test_complete_messages_of_a_process_killed_in_mid_frame_are_kept(
    meeting: Meeting, place: Address
) -> None:
    with peers.running(peers.killed_in_mid_frame, "p", str(place)):
        lost = meeting.first("a", Lost)
    assert lost == Lost("p", "it ended the connection in the middle of a message")
    assert [event.kind for event in meeting.of("a", Received)] == ["whole"]


def test_peers_killed_at_any_moment_do_not_disturb_others(meeting: Meeting, place: Address) -> None:
    def heard() -> set[str]:
        return {event.peer for event in meeting.of("a", Received)}

    is_tcp = isinstance(place, TcpAddress)
    with ExitStack() as stack:
        names = ["p0", "p1", "p2"]
        processes = [
            stack.enter_context(peers.running(peers.sender, name, str(place))) for name in names
        ]
        stranger = stack.enter_context(peers.running(peers.stranger, str(place)))
        meeting.until(lambda: heard() == set(names))
        for process in processes[:2]:
            process.kill()
        meeting.until(lambda: len(meeting.of("a", Lost)) == 2)
        meeting.events["a"] = [
            event for event in meeting.events["a"] if not isinstance(event, Received)
        ]
        meeting.until(lambda: heard() == {"p2"})
        meeting.until(lambda: stranger.exitcode is not None)
        if not is_tcp:
            meeting.first("a", Rejected)
    assert {event.peer for event in meeting.of("a", Lost)} == {"p0", "p1"}
    # In TLS, the stranger sees that the certificate is not one of its job, and leaves without a
    # word.
    assert len(meeting.of("a", Rejected)) == (0 if is_tcp else 1)
    assert meeting.endpoints["a"].peers == {"p2"}

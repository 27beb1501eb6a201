"""Frames of a link, and the handshake before them."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.agent.errors import BrokenFrame, LinkLost, WrongSecret
from spotctl.agent.link.wire import (
    MAX_FRAME_BYTES,
    MAX_HANDSHAKE_BYTES,
    AgentHandshake,
    CallerHandshake,
    LinkFrameReader,
    Seal,
    frame,
)
from tests.spotctl.agent.agents import SECRET, Agent
from tests.spotctl.agent.link.test_wire_client import OTHER


def connected(agent: Agent) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", agent.port), 10)
    found.recv(1 << 16)
    return found


def closed(sock: socket.socket) -> bytes:
    """What the agent still says before it closes the connection."""
    said = b""
    try:
        while data := sock.recv(1 << 16):
            said += data
    except ConnectionResetError:
        pass
    sock.close()
    return said


def test_an_agent_that_does_not_know_the_secret_is_not_trusted() -> None:
    caller, impostor = CallerHandshake(SECRET, "m-0"), AgentHandshake(OTHER, "m-0")
    caller.answer(impostor.hello[4:])
    with pytest.raises(WrongSecret, match="m-0 does not know the secret"):
        caller.finish(json.dumps({"proof": "00" * 32}).encode())


def test_a_recorded_handshake_is_worthless() -> None:
    agent, caller = AgentHandshake(SECRET, "m-0"), CallerHandshake(SECRET, "m-0")
    answer = caller.answer(agent.hello[4:])[4:]
    agent.finish(answer)
    with pytest.raises(WrongSecret):
        AgentHandshake(SECRET, "m-0").finish(answer)


@pytest.mark.parametrize(
    "sent",
    [
        (MAX_HANDSHAKE_BYTES + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        frame(b"not JSON"),
        frame(b"[1, 2]"),
        frame(b'{"challenge": 1}'),
        frame(b"[" * 1000),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["too long", "far too long", "no JSON", "no object", "no proof", "deep", "HTTP"],
)
def test_broken_frames_before_authentication_are_refused(agent: Agent, sent: bytes) -> None:
    stranger = connected(agent)
    stranger.sendall(sent)
    assert b"refused" in closed(stranger)
    assert agent.call("status")["work"] == ""


@pytest.mark.parametrize(
    "sent",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        frame(b'{"do": "status"}'),
        frame(b""),
        bytes(range(64)),
    ],
    ids=["too long", "unsigned", "empty", "noise"],
)
def test_broken_frames_of_a_known_caller_end_its_connection_only(agent: Agent, sent: bytes) -> None:
    broken, other = agent.connect(), agent.connect()
    broken.call("status")
    broken._socket.sendall(sent)
    broken._socket.shutdown(socket.SHUT_WR)
    with pytest.raises(LinkLost):
        broken._receive()
    assert other.call("status")["work"] == ""
    other.close()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 40), max_size=40))
def test_frames_arrive_whole_however_the_bytes_are_split(
    bodies: list[bytes], cuts: list[int]
) -> None:
    reader, sent, arrived = LinkFrameReader(), b"".join(map(frame, bodies)), []
    for cut in [*cuts, len(sent)]:
        reader.feed(sent[:cut])
        sent = sent[cut:]
        while (body := reader.next()) is not None:
            arrived.append(body)
    assert arrived == bodies


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_frame_that_was_changed_does_not_verify(position: int, change: int) -> None:
    sealed = bytearray(Seal(SECRET).sign({"do": "status", "padding": "x" * 100})[4:])
    sealed[position % len(sealed)] ^= change
    with pytest.raises(BrokenFrame, match="signature"):
        Seal(SECRET).verify(bytes(sealed))


def test_a_frame_cannot_be_repeated_or_sent_back() -> None:
    caller, agent = CallerHandshake(SECRET, "m-0"), AgentHandshake(SECRET, "m-0")
    last, to_caller, from_caller = agent.finish(caller.answer(agent.hello[4:])[4:])
    to_agent, from_agent = caller.finish(last[4:])
    sealed = to_agent.sign({"do": "renew"})[4:]
    assert from_caller.verify(sealed) == {"do": "renew"}
    with pytest.raises(BrokenFrame):
        from_caller.verify(sealed)
    with pytest.raises(BrokenFrame):
        from_agent.verify(to_agent.sign({"do": "renew"})[4:])
    assert to_caller is not to_agent

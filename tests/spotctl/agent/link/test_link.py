"""The link of a machine: which callers are let in, and that broken frames harm no other caller."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.agent.errors import BrokenFrame, LinkLost, RequestRefused, WrongSecret
from spotctl.agent.link.server import MAX_CONNECTIONS, LinkServer
from spotctl.agent.link.wire import (
    MAX_FRAME_BYTES,
    MAX_HANDSHAKE_BYTES,
    AgentHandshake,
    CallerHandshake,
    LinkClient,
    LinkFrameReader,
    Seal,
    frame,
)
from tests.spotctl.agent.agents import SECRET, Agent

OTHER = bytes(32)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    started = Agent(tmp_path_factory.mktemp("agent"))
    yield started
    started.close()


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


def test_a_link_may_be_a_unix_socket() -> None:
    with tempfile.TemporaryDirectory() as short:
        path = Path(short) / "agent.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        server = LinkServer(
            listener, "m-0", SECRET, lambda _, request: {"heard": request["do"]}, lambda _: None
        )
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                server.serve(0.05)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            client = LinkClient(path, "m-0", SECRET, 30.0)
            assert client.call("status") == {"heard": "status"}
            client.close()
        finally:
            done.set()
            thread.join()
            server.close()
        with pytest.raises(LinkLost, match=f"m-0: no agent answers at {path}"):
            LinkClient(path, "m-0", SECRET, 1.0)


def test_a_wrong_secret_is_refused_with_a_clear_message(agent: Agent) -> None:
    with pytest.raises(WrongSecret, match="m-0 refused the connection: wrong secret"):
        agent.connect(OTHER)
    assert agent.call("status")["work"] == ""


def test_another_machine_at_the_address_is_not_taken_for_the_one_that_was(agent: Agent) -> None:
    with pytest.raises(LinkLost, match="m-0 answers in place of m-1"):
        agent.connect(machine="m-1")


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


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"do": "explode"}, "unknown operation 'explode'"),
        ({"do": "renew", "until": "soon", "seconds": 1}, "bad arguments of renew"),
        ({"do": "renew"}, "bad arguments of renew"),
        ({"do": "assign", "payload": {"name": "x"}}, "is not a payload"),
        ({"do": "assign", "payload": None}, "is not a payload"),
        (
            {"do": "notify", "kind": "party", "until": 1, "seconds": 1, "source": ""},
            "notice of kind 'party'",
        ),
        ({"do": "output", "after": -1}, "bad arguments of output"),
        ({"do": "exec", "command": []}, "exec needs a command"),
        ({"do": "exec_read", "id": 99, "out": 0, "err": 0}, "there is no such command"),
    ],
)
def test_bad_requests_are_refused_and_the_connection_stays(
    agent: Agent, request_: dict[str, object], message: str
) -> None:
    client = agent.connect()
    operation = request_.pop("do")
    with pytest.raises(RequestRefused, match=message):
        client.call(str(operation), **request_)
    assert client.call("status")["work"] == ""
    client.close()


def test_strangers_do_not_keep_out_a_caller_that_knows_the_secret(agent: Agent) -> None:
    strangers = [
        socket.create_connection(("127.0.0.1", agent.port), 10) for _ in range(MAX_CONNECTIONS + 8)
    ]
    assert agent.call("status")["work"] == ""
    for stranger in strangers:
        stranger.close()


def test_a_caller_that_sends_many_requests_at_once_gets_all_answers_in_order(agent: Agent) -> None:
    client = agent.connect()
    requests = [{"do": "output", "after": number} for number in range(300)]
    client._socket.sendall(b"".join(client._sending.sign(request) for request in requests))
    for _ in requests:
        assert client._receiving.verify(client._receive()) == {"output": ""}
    client.close()


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


def test_the_folder_of_an_agent_does_not_hold_its_secret(agent: Agent) -> None:
    held = b"".join(path.read_bytes() for path in agent.folder.rglob("*") if path.is_file())
    assert SECRET not in held
    assert SECRET.hex().encode() not in held
    environment = Path(f"/proc/{agent.process.pid}/environ").read_bytes()
    assert SECRET.hex().encode() not in environment

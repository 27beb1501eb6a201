"""The link of a machine: which callers are let in, and that broken frames harm no other caller."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest

from spotctl.agent.errors import LinkLost, WrongSecret
from spotctl.agent.link.server import LinkServer
from spotctl.agent.link.wire import LinkClient
from tests.spotctl.agent.agents import SECRET, Agent

OTHER = bytes(32)


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


def test_the_folder_of_an_agent_does_not_hold_its_secret(agent: Agent) -> None:
    held = b"".join(path.read_bytes() for path in agent.folder.rglob("*") if path.is_file())
    assert SECRET not in held
    assert SECRET.hex().encode() not in held
    environment = Path(f"/proc/{agent.process.pid}/environ").read_bytes()
    assert SECRET.hex().encode() not in environment

"""Callers of an agent."""

from __future__ import annotations

import socket

import pytest

from spotctl.agent.errors import RequestRefused
from spotctl.agent.link.server import MAX_CONNECTIONS
from tests.spotctl.agent.agents import Agent


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

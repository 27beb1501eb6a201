"""Single connections that break; `python -m tests.agileml.cut_links 0 100` plays more schedules."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from agileml.core.events import Failed, Iteration
from agileml.engines.local import LocalEngine
from agileml.errors import AgileMLError
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.results import ModelPart, Result
from tests.agileml.cut_links import cut_one, open_now, play
from tests.agileml.engines.jobs import Timetable
from tests.agileml.engines.local.test_fleet_ends import job
from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.usefixtures("left_behind"), pytest.mark.timeout(600)]


@pytest.fixture
def cut_at_the_end(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The link between job loop and controller breaks, once, while it carries the result; returns
    what is lost.
    """
    lost: list[object] = []
    handle, repeat = ControllerClient._handle, ControllerClient._repeat
    linked = [True]

    def lose(client: ControllerClient, message: object) -> Iteration | None:
        if not isinstance(message, ModelPart | Result | Failed):
            return handle(client, message)
        if not lost:
            linked[0] = False
            client._mailbox._endpoint.drop(CONTROLLER, "it was cut")
        if linked[0]:
            return handle(client, message)
        lost.append(message)
        return None

    def link(client: ControllerClient) -> None:
        linked[0] = True
        repeat(client)

    monkeypatch.setattr(ControllerClient, "_handle", lose)
    monkeypatch.setattr(ControllerClient, "_repeat", link)
    return lost


@LOCAL_FAULT
@pytest.mark.timeout(60)
def test_the_result_comes_again_if_its_link_breaks(
    tmp_path: Path, cut_at_the_end: list[object]
) -> None:
    done = LocalEngine().run(job(tmp_path, clocks=2), Timetable({}), lambda _: None)
    assert done.model["w"][0, 0] == 32
    assert cut_at_the_end


@LOCAL_FAULT
@pytest.mark.timeout(60)
def test_so_does_the_reason_of_a_failure(tmp_path: Path, cut_at_the_end: list[object]) -> None:
    with pytest.raises(AgileMLError, match="KeyError: 'x'"):
        LocalEngine().run(job(tmp_path, "raise KeyError('x')"), Timetable({}), lambda _: None)
    assert cut_at_the_end


@LOCAL_FAULT
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [3, 5, 9])
def test_the_model_equals_the_reference_whatever_connection_breaks(seed: int) -> None:
    play(seed)


def test_connections_that_are_not_of_the_job_stay() -> None:
    """A schedule once broke the connection of a pytest plugin, and with it the run of all tests."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        peer, _ = server.accept()
        with peer:
            spared = open_now()
            for seed in range(10):
                cut_one(random.Random(seed), spared)
            ours.sendall(b"still here")
            assert peer.recv(10) == b"still here"

"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotctl.agent.container.payload import Payload
from tests.spotctl.agent.agents import Agent

Started = Callable[..., Agent]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    agents: list[Agent] = []

    def start(payload: Payload | None = None, seconds: float = 1000.0) -> Agent:
        agents.append(Agent(tmp_path, payload, seconds))
        return agents[-1]

    yield start
    for agent in agents:
        agent.close()

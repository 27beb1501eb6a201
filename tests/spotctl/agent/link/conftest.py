"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spotctl.agent.agents import Agent


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    started = Agent(tmp_path_factory.mktemp("agent"))
    yield started
    started.close()

"""Errors of RunPod's API."""

from __future__ import annotations

import pytest

from pricing_data.errors import MissingCredentials
from spotctl.clouds.errors import LoginNeeded, Throttled, Unanswered
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.provider import RunPodProvider
from tests.servers.loopback import Fault, Reply
from tests.spotctl.clouds.runpod.world import World, order


@pytest.mark.parametrize("says_401", [True, False])
def test_a_wrong_key_is_told(
    made: World, provider: RunPodProvider, monkeypatch: pytest.MonkeyPatch, says_401: bool
) -> None:
    made.api.says_401 = says_401
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_wrong")
    with pytest.raises(LoginNeeded, match="set RUNPOD_API_KEY"):
        provider.list({})


def test_a_key_is_never_sent_in_the_open() -> None:
    with pytest.raises(MissingCredentials, match="https address"):
        RunPodCalls("http://api.example.org").account()


def test_too_many_calls_are_repeated_and_then_told(
    made: World, provider: RunPodProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        made.market.advance(seconds)

    monkeypatch.setattr("spotctl.clouds.runpod.calls.time.sleep", sleep)
    made.api.calls_a_minute = 2
    provider.list({})
    provider.list({})
    provider.list({})
    assert sum(slept) >= 60
    assert len(made.server.requests) > 3
    made.api.calls_a_minute = 0
    with pytest.raises(Throttled, match="try again"):
        provider.list({})


def test_an_error_that_says_nothing_may_have_been_an_order(
    made: World, provider: RunPodProvider
) -> None:
    vague = Reply.of_json(
        {
            "errors": [
                {"message": "Something went wrong. Please try again later or contact support."}
            ]
        }
    )
    made.server.faults.append(Fault("/graphql", vague, skip=1))
    with pytest.raises(Unanswered):
        provider.create(order())

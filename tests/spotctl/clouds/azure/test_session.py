"""Signing in to Azure, and the errors of its SDK."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from spotctl.clouds.azure.session import SharedToken, cause_of
from tests.spotctl.clouds.azure.prices.test_source_account import Credential


def test_a_token_is_shared_by_threads_and_renewed_before_it_ends() -> None:
    lasting = Credential()
    shared = SharedToken(lasting)
    with ThreadPoolExecutor(8) as pool:
        tokens = {token.token for token in pool.map(lambda _: shared.get_token("scope"), range(40))}
    assert tokens == {"token-1"}
    assert shared.get_token("scope", claims="more").token == "token-2"
    assert shared.get_token("scope").token == "token-2"
    ending = SharedToken(Credential(seconds=60))
    assert [ending.get_token("scope").token for _ in range(3)] == ["token-1", "token-2", "token-3"]


_FULL = {"code": "AllocationFailed", "message": "full"}


@pytest.mark.parametrize(
    "error",
    [
        _FULL,
        {"code": "DeploymentFailed", "message": "see details", "details": [_FULL]},
        {
            "code": "DeploymentFailed",
            "details": [{"code": "Conflict", "message": json.dumps({"error": _FULL})}],
        },
    ],
)
def test_the_cause_is_found_inside_the_errors_that_wrap_it(error: dict[str, object]) -> None:
    assert cause_of(error) == ("AllocationFailed", "full")
    assert cause_of(None) == ("", "")

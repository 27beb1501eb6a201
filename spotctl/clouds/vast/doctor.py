"""Checks of Vast.ai: the key, the clock, and the credit, which bounds what a forgotten disk can
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spotctl.clouds.doctor import Finding, Level, skew
from spotctl.clouds.errors import Answers
from spotctl.clouds.vast.calls import VastCalls
from spotctl.clouds.vast.cloud import ACCOUNT, CLOUD_NAME, address, api_key
from spotctl.home.config import Settings

SETUP = f"{ACCOUNT.setup} (docs/vast.md)"
MIN_CREDIT_USD = 1.0


def is_configured(settings: Settings) -> bool:  # noqa: ARG001 - see `DoctorPart`
    return api_key() is not None


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    calls = VastCalls(address(settings.text("vast_url")))
    try:
        account = answers.of("vast user", calls.user)
    finally:
        calls.close()

    yield Finding(CLOUD_NAME, "credentials", Level.GOOD, f"account {account.get('id')}")
    if calls.date:
        yield skew(CLOUD_NAME, calls.date)

    credit = float(account.get("credit") or 0.0) + float(account.get("balance") or 0.0)
    if credit < MIN_CREDIT_USD:
        cure = "add credit at https://cloud.vast.ai/billing: without it, Vast.ai stops instances"
        yield Finding(CLOUD_NAME, "credit", Level.FAILS, f"${credit:.2f}", cure)
    else:
        most = f"${credit:.2f}, the most that the account can lose"
        yield Finding(CLOUD_NAME, "credit", Level.GOOD, most)


POLICIES: Mapping[str, Callable[[Settings], dict[str, Any]]] = {}

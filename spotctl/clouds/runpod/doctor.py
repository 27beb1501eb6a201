"""Checks of RunPod: the key, the clock, and the credit, without which pods are ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spotctl.clouds.doctor import Finding, Level, skew
from spotctl.clouds.errors import Answers
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import ACCOUNT, CLOUD_NAME, address, api_key
from spotctl.home.config import Settings

SETUP = f"{ACCOUNT.setup} (docs/runpod.md)"
MIN_CREDIT_USD = 1.0


def is_configured(settings: Settings) -> bool:  # noqa: ARG001 - see `DoctorPart`
    return api_key() is not None


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    calls = RunPodCalls(address(settings.text("runpod_url")))
    try:
        account = answers.of("runpod account", calls.account)
    finally:
        calls.close()

    yield Finding(CLOUD_NAME, "credentials", Level.GOOD, f"account {account.get('id')}")
    if calls.date:
        yield skew(CLOUD_NAME, calls.date)

    credit, spent = (
        float(account.get(name) or 0.0) for name in ("clientBalance", "currentSpendPerHr")
    )
    shown = f"${credit:.2f}" + (f"; what runs costs ${spent:.2f} an hour" if spent else "")
    if credit < max(MIN_CREDIT_USD, spent):
        cure = "add credit at https://console.runpod.io/user/billing: at $0, RunPod ends pods"
        yield Finding(CLOUD_NAME, "credit", Level.FAILS, shown, cure)
    else:
        yield Finding(CLOUD_NAME, "credit", Level.GOOD, shown)


POLICIES: Mapping[str, Callable[[Settings], dict[str, Any]]] = {}

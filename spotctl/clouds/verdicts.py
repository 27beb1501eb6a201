"""Turns a cloud's answers into findings, in the same words for every cloud."""

from __future__ import annotations

import os
import time
from email.utils import parsedate_to_datetime

from pricing_data.errors import AccessDenied, CloudError, MissingCredentials, UnknownResource
from spotctl.clouds.findings import Finding, Level

TIMEOUT_SECONDS = 5.0
MOST_SKEW_SECONDS = 120.0
"""Clouds reject requests signed five minutes off; leases go wrong well before that."""


def refused(cloud: str, what: str, error: CloudError) -> Finding:
    """The finding for a check that failed. A project or subscription that cannot be found counts as no access."""
    level = Level.NO_ACCESS if isinstance(error, MissingCredentials | AccessDenied | UnknownResource) else Level.FAILS
    return Finding(cloud, what, level, error.problem, error.cure or "run spotctl doctor again")


def skew(cloud: str, date: str) -> Finding:
    """How far this computer's clock is from a cloud's, by the Date header of an answer that has just arrived."""
    behind = parsedate_to_datetime(date).timestamp() - time.time()
    detail = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} {cloud}"
    if abs(behind) > MOST_SKEW_SECONDS:
        return Finding(cloud, "clock", Level.FAILS, detail, "set this computer's clock (timedatectl set-ntp true)")
    return Finding(cloud, "clock", Level.GOOD, detail)


def permissions(cloud: str, missing: list[str], checked: int) -> Finding:
    """Which of the checked permissions are missing."""
    if not missing:
        return Finding(cloud, "permissions", Level.GOOD, f"all {checked} that were checked are granted")
    detail = f"{len(missing)} of {checked} are missing: {', '.join(missing)}"
    return Finding(
        cloud, "permissions", Level.NO_ACCESS, detail, f"grant the policy from spotctl doctor --policy {cloud}"
    )


def quota(cloud: str, what: str, vcpus: float | None, cure: str) -> Finding:
    """How many vCPUs may run at the same time; `cure` says how to get more."""
    if vcpus is None:
        return Finding(cloud, what, Level.NOTE, "could not be read", cure)
    if vcpus < 1:
        return Finding(cloud, what, Level.FAILS, "the quota is 0 vCPUs", cure)
    return Finding(cloud, what, Level.GOOD, f"{vcpus:,.0f} vCPUs")


def any_set(*names: str) -> bool:
    """Whether one of these environment variables is set."""
    return any(os.environ.get(name) for name in names)

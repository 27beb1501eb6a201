"""What an answer of a cloud means, said the same way for all of them."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from pricing_data.errors import AccessDenied, MissingCredentials, SourceError
from spotctl.doctor.findings import Finding, Level

TIMEOUT_SECONDS = 5.0
MOST_SKEW_SECONDS = 120.0
"""AWS refuses what is signed five minutes off; well before that, leases end at other times than meant."""


def refused(cloud: str, what: str, error: SourceError) -> Finding:
    """What a failed question means; the error's message carries its cure behind the last colon or semicolon."""
    level = Level.NO_ACCESS if isinstance(error, MissingCredentials | AccessDenied) else Level.FAILS
    told, mark, cure = str(error).rpartition("; " if "; " in str(error) else ": ")
    return Finding(cloud, what, level, told if mark else cure, cure)


def skew(cloud: str, date: str) -> Finding:
    """How far this computer's clock is from that of a cloud, by the date of an answer that has just come."""
    behind = parsedate_to_datetime(date).timestamp() - time.time()
    told = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} {cloud}"
    if abs(behind) > MOST_SKEW_SECONDS:
        return Finding(cloud, "clock", Level.FAILS, told, "set this computer's clock (timedatectl set-ntp true)")
    return Finding(cloud, "clock", Level.GOOD, told)


def permissions(cloud: str, missing: list[str], asked: int) -> Finding:
    """Which of the permissions that were asked about are lacking."""
    if not missing:
        return Finding(cloud, "permissions", Level.GOOD, f"all {asked} that were asked about")
    told = f"{len(missing)} of {asked} are lacking: {', '.join(missing)}"
    return Finding(cloud, "permissions", Level.NO_ACCESS, told, f"grant what spotctl doctor --policy {cloud} prints")


def quota(cloud: str, what: str, vcpus: float | None, cure: str) -> Finding:
    """How many vCPUs may run at once; `cure` is where one asks for more."""
    if vcpus is None:
        return Finding(cloud, what, Level.NOTE, "could not be read", cure)
    if vcpus < 1:
        return Finding(cloud, what, Level.FAILS, "no vCPU may run", cure)
    return Finding(cloud, what, Level.GOOD, f"{vcpus:,.0f} vCPUs")

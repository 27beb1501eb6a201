"""`Finding`: the result of one check, what to do about it, and the findings that every cloud has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

from pricing_data.errors import AccessDenied, CloudError, MissingCredentials, UnknownResource
from spotctl.clouds.errors import (
    AT_A_TIME,
    ErrorAction,
    NotPermitted,
    NotYet,
    ProviderError,
    Scope,
    Throttled,
    Unanswered,
    action_for,
)
from spotctl.home.errors import SpotctlError

ALL_GOOD, SOMETHING_FAILS, ACCESS_FAILS = 0, 1, 5


class Level(Enum):
    """The severity of a finding."""

    GOOD = "good"
    NOTE = "note"
    """Information; nothing fails because of it."""
    FAILS = "fails"
    NO_ACCESS = "no access"
    """Credentials or permissions are missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `about` groups them: `here`, `runs`, `prices`, `data`, `messages`, or a cloud."""

    about: str
    what: str
    level: Level
    detail: str
    cure: str = ""
    scope: Scope = Scope.ACCOUNT
    """How far a problem reaches: orders outside of it may succeed."""

    def __post_init__(self) -> None:
        assert self.cure or not self.is_bad, f"{self.what} fails without a cure"

    @property
    def is_bad(self) -> bool:
        """Whether something fails because of it."""
        return self.level in (Level.FAILS, Level.NO_ACCESS)

    def __str__(self) -> str:
        return f"{self.about}: {self.what}: {self.detail}{f'; {self.cure}' if self.cure else ''}"


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code of `spotctl doctor`: 5 if a configured cloud denies access, 1 if any other check fails."""
    levels = {finding.level for finding in findings}
    if Level.NO_ACCESS in levels:
        return ACCESS_FAILS
    return SOMETHING_FAILS if Level.FAILS in levels else ALL_GOOD


RESERVED = "reserved machines count against none"


class Check(NamedTuple):
    """A condition for renting machines: `call` says what was found, or raises the error of an order, whose
    message ends with the cure. Without the permission, an `optional` check is left out; one of a `note` says what
    cannot be checked."""

    what: str
    call: Callable[[], str]
    optional: bool = False
    note: bool = False


def finding_of(cloud: str, check: Check) -> Finding:
    """The finding of a check. What a cloud does not know yet, and what it did not answer, are notes."""
    try:
        return Finding(cloud, check.what, Level.NOTE if check.note else Level.GOOD, check.call())
    except (SpotctlError, CloudError) as error:
        problem, said, cure = str(error).rpartition("; ")
        denied = getattr(error, "scope", None) is Scope.ORGANISATION or isinstance(error, NotPermitted | AccessDenied)
        level = Level.NO_ACCESS if denied else Level.FAILS
        unknown = (NotYet, Throttled, Unanswered, *((NotPermitted, AccessDenied) if check.optional else ()))
        if isinstance(error, unknown):
            level = Level.NOTE
        scope = Scope.ACCOUNT
        if isinstance(error, ProviderError) and action_for(error) is ErrorAction.OTHER_MARKET:
            scope = error.scope
        return Finding(
            cloud,
            check.what,
            level,
            problem or str(error),
            cure if said else f"correct [{cloud}] in config.toml",
            scope,
        )


def all_found(cloud: str, checks: Sequence[Check]) -> list[Finding]:
    """The findings of checks, which are made at the same time."""
    with ThreadPoolExecutor(AT_A_TIME, f"{cloud}-check") as pool:
        return list(pool.map(lambda check: finding_of(cloud, check), checks))


TIMEOUT_SECONDS = 5.0
MAX_SKEW_SECONDS = 120.0
"""Clouds reject requests signed five minutes off; leases go wrong well before that."""


def refused(cloud: str, what: str, error: CloudError) -> Finding:
    """The finding for a check that failed. A project or subscription that cannot be found counts as no access."""
    level = Level.NO_ACCESS if isinstance(error, MissingCredentials | AccessDenied | UnknownResource) else Level.FAILS
    return Finding(cloud, what, level, error.problem, error.cure or "run spotctl doctor again")


def skew(cloud: str, date: str) -> Finding:
    """How far this computer's clock is from a cloud's, by the Date header of an answer that has just arrived."""
    behind = parsedate_to_datetime(date).timestamp() - time.time()
    detail = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} {cloud}"
    if abs(behind) > MAX_SKEW_SECONDS:
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

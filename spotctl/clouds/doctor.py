"""The needs of every cloud before machines are rented: requirements, and the findings about them.

A cloud lists its requirements as rows (`Requirement`): a title, and a call that looks one thing up.
One engine makes the calls and judges what they say or raise: `finding_of`. So `doctor`,
`plan --check`, launches and `try` say the same of the same account. A call never changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from pricing_data.errors import AccessDenied, CloudError, MissingCredentials, UnknownResource
from spotctl.clouds.errors import (
    AT_A_TIME,
    ErrorAction,
    LoginNeeded,
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
    """The result of one check. `about` groups them: `here`, `runs`, `prices`, `data`, `messages`,
    or a cloud.
    """

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
    """The exit code of `spotctl doctor`: 5 if a configured cloud denies access, 1 if any other
    check fails.
    """
    levels = {finding.level for finding in findings}
    if Level.NO_ACCESS in levels:
        return ACCESS_FAILS
    return SOMETHING_FAILS if Level.FAILS in levels else ALL_GOOD


RESERVED = "reserved machines count against none"


class Requirement(NamedTuple):
    """A need of an account or an order.

    `call` says what was found, or raises the error of an order, whose message ends with the cure.
    Without the permission for the call, an `optional` requirement is left out. A `note` says what
    cannot be looked up. What is missing is `access` where nothing is shared with an unknown caller.
    """

    title: str
    call: Callable[[], str]
    optional: bool = False
    note: bool = False
    access: bool = False


B = TypeVar("B")
S = TypeVar("S")
R = TypeVar("R")


class OrderNeeds(Generic[B, S, R]):
    """The needs of one order. A cloud's subclass lists them in its `rows`, and looks each up.

    `buyer` is what buys the order's machines, so that it is asked, not asked again; `settings` are
    the user's; `request` is the order's.
    """

    def __init__(self, buyer: B, settings: S, request: R) -> None:
        self.buyer, self.settings, self.request = buyer, settings, request


def finding_of(cloud: str, requirement: Requirement) -> Finding:
    """The verdict on a requirement.

    What a cloud does not know yet, and what it did not answer, are notes.
    """
    what, call, is_optional, is_note, is_access = requirement
    try:
        return Finding(cloud, what, Level.NOTE if is_note else Level.GOOD, call())
    except (SpotctlError, CloudError) as error:
        problem, said, cure = str(error).rpartition("; ")
        refusals = (NotPermitted, AccessDenied)
        access = (*refusals, MissingCredentials, UnknownResource) if is_access else refusals
        is_denied = getattr(error, "scope", None) is Scope.ORGANISATION or isinstance(error, access)
        level = Level.NO_ACCESS if is_denied else Level.FAILS
        unknown = (NotYet, Throttled, Unanswered, *(refusals if is_optional else ()))
        # Who has not signed in lacks more than the permission for one call.
        if isinstance(error, unknown) and not isinstance(error, LoginNeeded):
            level = Level.NOTE

        scope = Scope.ACCOUNT
        if isinstance(error, ProviderError) and action_for(error) is ErrorAction.OTHER_MARKET:
            scope = error.scope
        cure = cure if said else f"correct [{cloud}] in config.toml"
        return Finding(cloud, what, level, problem or str(error), cure, scope)


def all_found(cloud: str, requirements: Sequence[Requirement]) -> list[Finding]:
    """The verdicts on requirements, which are looked up at the same time."""
    with ThreadPoolExecutor(AT_A_TIME, f"{cloud}-check") as pool:
        return list(pool.map(partial(finding_of, cloud), requirements))


TIMEOUT_SECONDS = 5.0
MAX_SKEW_SECONDS = 120.0
"""Clouds reject requests signed five minutes off; leases go wrong well before that."""


def refused(cloud: str, what: str, error: CloudError) -> Finding:
    """The finding for a check that failed. A project or subscription that cannot be found counts as
    no access.
    """
    level = (
        Level.NO_ACCESS
        if isinstance(error, MissingCredentials | AccessDenied | UnknownResource)
        else Level.FAILS
    )
    return Finding(cloud, what, level, error.problem, error.cure or "run spotctl doctor again")


def skew(cloud: str, date: str) -> Finding:
    """How far this computer's clock is from a cloud's, by the Date header of an answer that has
    just arrived.
    """
    behind = parsedate_to_datetime(date).timestamp() - time.time()
    detail = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} {cloud}"
    if abs(behind) > MAX_SKEW_SECONDS:
        return Finding(
            cloud,
            "clock",
            Level.FAILS,
            detail,
            "set this computer's clock (timedatectl set-ntp true)",
        )

    return Finding(cloud, "clock", Level.GOOD, detail)


def permissions(cloud: str, missing: list[str], checked: int) -> Finding:
    """Which of the checked permissions are missing."""
    if not missing:
        return Finding(
            cloud, "permissions", Level.GOOD, f"all {checked} that were checked are granted"
        )

    detail = f"{len(missing)} of {checked} are missing: {', '.join(missing)}"
    return Finding(
        cloud,
        "permissions",
        Level.NO_ACCESS,
        detail,
        f"grant the policy from spotctl doctor --policy {cloud}",
    )


def quota(cloud: str, what: str, vcpus: float | None, cure: str) -> Finding:
    """How many vCPUs may run at the same time; `cure` says how to get more."""
    if vcpus is None:
        return Finding(cloud, what, Level.NOTE, "could not be read", cure)
    if vcpus < 1:
        return Finding(cloud, what, Level.FAILS, "the quota is 0 vCPUs", cure)
    return Finding(cloud, what, Level.GOOD, f"{vcpus:,.0f} vCPUs")

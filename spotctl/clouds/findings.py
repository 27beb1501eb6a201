"""`Finding`: the result of one check, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

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
    """The result of one check. `about` groups them: `here`, `runs`, `prices`, `data`, or a cloud."""

    about: str
    what: str
    level: Level
    detail: str
    cure: str = ""

    def __post_init__(self) -> None:
        assert self.cure or self.level in (Level.GOOD, Level.NOTE), f"{self.what} fails without a cure"


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code of `spotctl doctor`: 5 if a configured cloud denies access, 1 if any other check fails."""
    levels = {finding.level for finding in findings}
    if Level.NO_ACCESS in levels:
        return ACCESS_FAILS
    return SOMETHING_FAILS if Level.FAILS in levels else ALL_GOOD

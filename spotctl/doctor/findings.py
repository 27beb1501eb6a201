"""`Finding`: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

ALL_GOOD, SOMETHING_FAILS, ACCESS_FAILS = 0, 1, 5


class Level(Enum):
    """How bad it is."""

    GOOD = "good"
    NOTE = "note"
    """Good to know; nothing fails because of it."""
    FAILS = "fails"
    NO_ACCESS = "no access"
    """Credentials or permissions are missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `about` groups them: `here`, `runs`, `prices`, or a cloud."""

    about: str
    what: str
    level: Level
    told: str
    cure: str = ""

    def __post_init__(self) -> None:
        assert self.cure or self.level in (Level.GOOD, Level.NOTE), f"{self.what} fails and names no cure"


def exit_code(findings: Iterable[Finding]) -> int:
    """What `spotctl doctor` ends with: 5 if a cloud that is set up refuses, 1 if anything else fails."""
    levels = {finding.level for finding in findings}
    if Level.NO_ACCESS in levels:
        return ACCESS_FAILS
    return SOMETHING_FAILS if Level.FAILS in levels else ALL_GOOD

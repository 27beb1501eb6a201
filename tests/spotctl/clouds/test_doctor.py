"""The engine of requirements, and exit codes of findings."""

from __future__ import annotations

from threading import Barrier

import pytest

from spotctl.clouds.doctor import Finding, Level, Requirement, all_found, exit_code
from spotctl.clouds.errors import LoginNeeded, NotPermitted


def test_checks_are_made_at_the_same_time() -> None:
    """Each waits for all others."""
    barrier = Barrier(8)
    checks = [Requirement(str(number), lambda: str(barrier.wait(60.0))) for number in range(8)]
    assert {finding.level for finding in all_found("aws", checks)} == {Level.GOOD}


@pytest.mark.parametrize(
    ("error", "level"), [(NotPermitted, Level.NOTE), (LoginNeeded, Level.NO_ACCESS)]
)
def test_who_has_not_signed_in_lacks_more_than_a_permission(
    error: type[NotPermitted], level: Level
) -> None:
    def call() -> str:
        raise error("no; sign in")

    (finding,) = all_found("aws", [Requirement("a look that is optional", call, optional=True)])
    assert finding.level is level


@pytest.mark.parametrize(
    ("levels", "code"),
    [
        ([], 0),
        ([Level.GOOD, Level.NOTE], 0),
        ([Level.FAILS, Level.NOTE], 1),
        ([Level.FAILS, Level.NO_ACCESS, Level.GOOD], 5),
    ],
)
def test_the_exit_code(levels: list[Level], code: int) -> None:
    assert exit_code(Finding("here", "it", level, "", "do it") for level in levels) == code

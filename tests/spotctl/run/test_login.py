"""A login that expires while machines hold leases: the run waits for the user to sign in again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.units import MINUTE
from spotctl.clouds.errors import LoginNeeded
from spotctl.clouds.link import LeaseTimes
from spotctl.log import events as ev
from tests.spotctl.clouds.fake import Call, Refusal
from tests.spotctl.run.faults import clean, provider_prices
from tests.spotctl.run.worlds import MARKETS, START, Life, life

EXPIRED = Refusal(LoginNeeded("the credentials have expired; run: aws sso login"))


def refused(one: Life, begin: int, end: int, *calls: str) -> None:
    """The cloud refuses the login for a while; agents on machines go on answering."""

    def weather(call: Call) -> Refusal | None:
        return (
            EXPIRED
            if begin <= call.at - START < end and (not calls or call.name in calls)
            else None
        )

    one.cloud.weather = weather


@pytest.mark.parametrize(
    "calls", [("list", "create", "terminate", "prices", "resources"), ("list",), ("create",)]
)
def test_a_login_renewed_within_the_lease_changes_nothing(
    tmp_path: Path, calls: tuple[str, ...]
) -> None:
    one = life(tmp_path, {8: (MARKETS[0], True)}, rounds=200)
    provider_prices(one)
    refused(one, 10 * MINUTE, 14 * MINUTE, *calls)
    ended = one.run()
    assert ended.outcome == "done"
    clean(one)
    waits = [row for row in one.rows() if isinstance(row.event, ev.LoginAwaited | ev.LoginWorks)]
    assert [type(row.event) for row in waits] == [ev.LoginAwaited, ev.LoginWorks] * (
        len(waits) // 2
    )
    if "list" in calls:
        first, second = waits
        assert first.at - START < 11 * MINUTE
        assert second.at - START >= 14 * MINUTE
        assert isinstance(first.event, ev.LoginAwaited)
        assert first.event.message.endswith("aws sso login")
        assert one.state().login is None


def test_a_login_that_is_not_renewed_ends_the_run_with_its_first_lease(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    provider_prices(one)
    refused(one, 10 * MINUTE, 10**9 * MINUTE, "list", "create", "terminate", "prices", "resources")
    ended = one.run()
    assert (ended.outcome, ended.message) == (
        "not permitted",
        "the credentials have expired; run: aws sso login",
    )
    clean(one)
    (awaited,) = (row.event for row in one.rows() if isinstance(row.event, ev.LoginAwaited))
    (stopped,) = (row.at for row in one.rows() if isinstance(row.event, ev.StopRequested))
    assert awaited.until <= stopped < awaited.until + 2 * MINUTE
    assert (
        awaited.until
        == min(held.lease_until for held in one.state().machines.values()) - LeaseTimes().notice
    )


def test_a_login_that_is_refused_from_the_start_is_not_waited_for(tmp_path: Path) -> None:
    one = life(tmp_path)
    refused(one, 0, 10**9 * MINUTE)
    ended = one.run()
    assert ended.outcome == "not permitted"
    assert one.cloud.now() - START < 3 * MINUTE
    assert not one.cloud.everything

"""What goes wrong on the way: the run goes on, or ends with the right outcome and nothing running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import stamina
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing_data.units import HOUR, MINUTE
from spotctl.orchestrator import guard
from spotctl.orchestrator.errors import LogFailed
from spotctl.orchestrator.execute import Patience
from spotctl.orchestrator.log import EventLog
from spotctl.orchestrator.runner import Limits
from spotctl.providers.base import NoCapacity, NotPermitted, ProviderError, QuotaReached, Throttled, Unanswered
from tests.spotctl.orchestrator.worlds import MARKETS, TARIFF, DeadlyLog, Death, Killed, Life, life

ERRORS = {
    "throttled": Throttled("slow down"),
    "unanswered": Unanswered("nobody answers"),
    "other": ProviderError("the disk of the provider is full"),
}


def failing(times: int, error: Exception, only: str = "") -> Callable[[str], Exception | None]:
    left = [times]

    def fail(what: str) -> Exception | None:
        if not what.startswith(only) or not left[0]:
            return None
        left[0] -= 1
        return error

    return fail


def clean(one: Life) -> None:
    assert not one.cloud.running
    assert one.state().machines.keys() == one.cloud.all.keys()


@pytest.mark.parametrize("call", ["rent", "renew", "give back", "machines"])
@pytest.mark.parametrize("error", sorted(ERRORS))
def test_calls_that_fail_are_made_again(tmp_path: Path, call: str, error: str) -> None:
    one = life(tmp_path)
    one.cloud.fail = failing(3, ERRORS[error], call)
    assert one.run().outcome == "done"
    clean(one)
    if error != "other":
        assert len(one.cloud.all) == 4


@pytest.mark.parametrize("call", ["rent", "renew", "give back", "machines"])
def test_an_answer_that_is_lost_buys_nothing_twice(tmp_path: Path, call: str) -> None:
    one = life(tmp_path)
    one.cloud.lose_answer = failing(5, Unanswered("the line is dead"), call)
    assert one.run().outcome == "done"
    clean(one)
    assert len(one.cloud.all) == 4


def test_a_call_is_repeated_at_once_with_pauses(tmp_path: Path) -> None:
    one = replace(life(tmp_path), patience=Patience(attempts=3, first_pause=0.0))
    one.cloud.fail = failing(2, Throttled("slow down"), "rent")
    with stamina.set_testing(True, attempts=3):
        one.run()
    assert one.cloud.calls.index("renew") > [i for i, call in enumerate(one.cloud.calls) if call == "rent b"][2]
    assert one.cloud.calls[:5].count("rent b") == 3


@pytest.mark.parametrize("error", [NoCapacity("none left"), QuotaReached("no more of these")])
def test_a_market_that_refuses_rests_and_the_next_is_taken(tmp_path: Path, error: Exception) -> None:
    one = life(tmp_path)
    one.cloud.fail = failing(10**6, error, "rent a")
    assert one.run().outcome == "done"
    assert {machine.market for machine in one.cloud.all.values()} == {MARKETS[1]}
    first = one.state().rests[MARKETS[0]]
    assert first.times == one.cloud.calls.count("rent a")
    clean(one)


def test_no_capacity_anywhere_ends_in_time(tmp_path: Path) -> None:
    one = replace(life(tmp_path), limits=Limits(without_machines=HOUR))
    one.cloud.fail = failing(10**6, NoCapacity("none left"), "rent")
    ended = one.run()
    assert ended.outcome == "no capacity"
    assert HOUR < one.cloud.clock - one.state().started < HOUR + 5 * MINUTE
    assert one.cloud.calls.count("rent b") < 12, "a market that refuses is not asked all the time"


def test_a_lost_market_is_not_tried_first_again(tmp_path: Path) -> None:
    one = life(tmp_path, {8: (MARKETS[0], False)})
    one.run()
    spot = [machine.market for machine in one.cloud.all.values() if machine.bid is not None]
    assert spot == [MARKETS[0]] * 3 + [MARKETS[1]] * 3


def test_credentials_that_expire_leave_it_to_the_leases(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    one.cloud.fail = lambda _: NotPermitted("expired; log in again") if one.cloud.rounds > 20 else None
    ended = one.run()
    assert (ended.outcome, ended.message) == ("not permitted", "expired; log in again")
    clean(one)


def test_a_full_disk_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(DeadlyLog):
        def append(self, run: str, at: int, event: object) -> object:  # type: ignore[override]
            if one.cloud.rounds > 5:
                raise LogFailed("event log: disk full")
            return super().append(run, at, event)  # type: ignore[arg-type]

    one = life(tmp_path, {6: (MARKETS[0], False)})
    monkeypatch.setattr("tests.spotctl.orchestrator.worlds.DeadlyLog", Full)
    with pytest.raises(LogFailed):
        one.run()
    assert not one.cloud.running


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_jumps(tmp_path: Path, jump: int) -> None:
    one = life(tmp_path)

    def jumping(_: str) -> None:
        if one.cloud.rounds == 6 and not jumped:
            one.cloud.clock += jump
            jumped.append(jump)

    jumped: list[int] = []
    one.cloud.fail = jumping
    assert one.run().outcome == "done"
    clean(one)
    with EventLog(one.path) as log:
        moments = [row.at for row in log.of_run("job-1")]
    assert moments == sorted(moments), "the log's time went back"


def exact(one: Life) -> int:
    """What the cloud bills, by its own account."""
    amount = 0
    for machine in one.cloud.all.values():
        assert machine.ended is not None
        price = 200_000_000 if machine.bid is None else {MARKETS[0]: 50_000_000, MARKETS[1]: 60_000_000}[machine.market]
        amount += max(-(-(machine.ended - machine.started) // 10**6), 60) * price
    return amount


def test_the_log_tells_what_was_spent(tmp_path: Path) -> None:
    one = life(tmp_path, {8: (MARKETS[0], True), 24: (MARKETS[1], False)})
    one.run()
    assert guard.spent(one.state(), one.cloud.clock, TARIFF) == exact(one)


@settings(max_examples=15, deadline=None)
@given(
    budget=st.integers(1, 400),
    dies=st.lists(st.integers(0, 60), max_size=2),
    lost=st.integers(0, 40),
    call=st.sampled_from(["rent", "renew", "give back"]),
)
def test_a_budget_is_never_passed(
    tmp_path_factory: pytest.TempPathFactory, budget: int, dies: list[int], lost: int, call: str
) -> None:
    limit = budget * guard.NANO_SECONDS_PER_DOLLAR // 1000
    one = replace(life(tmp_path_factory.mktemp("budget"), rounds=400), limits=Limits(budget=limit))
    one.cloud.lose_answer = failing(lost, Unanswered("the line is dead"), call)
    for at in dies:
        try:
            one.run(Death(at))
        except Killed:
            # Nobody goes on for a while: the leases run out.
            for _ in range(at):
                one.cloud.pass_round()
    assert one.run().outcome in ("budget reached", "done")
    clean(one)
    assert exact(one) <= limit

"""Provider faults: the run continues, or ends with the right outcome and no machine running."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import stamina

from pricing_data.units import HOUR, MINUTE, NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    ProviderError,
    QuotaReached,
    Throttled,
    Unanswered,
)
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest
from spotctl.log import budget, events as ev
from spotctl.log.outcomes import NOT_PERMITTED
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import RetryPolicy
from tests.spotctl.clouds.fake import Call, Fault, LostAnswer, LostRequest, PartialGrant, Refusal
from tests.spotctl.run.faults import always, begun, clean, for_market, provider_prices
from tests.spotctl.run.worlds import MARKETS, START, TARIFF, life, terms

CALLS = ("create", "renew", "terminate", "list")


FAULTS: dict[str, Fault] = {
    "throttled": Refusal(Throttled("slow down")),
    "lost request": LostRequest(),
    "lost answer": LostAnswer(),
    "other": Refusal(ProviderError("the disk of the provider is full")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_failed_requests_are_repeated_and_nothing_is_bought_twice(
    tmp_path: Path, call: str, fault: str
) -> None:
    one = life(tmp_path)
    # The second equal refusal of an order that is in no table ends the run.
    times = 1 if (fault, call) == ("other", "create") else 5
    one.cloud.script(call, *[FAULTS[fault]] * times)
    assert one.run().outcome == "done"
    clean(one)
    if fault != "other":
        assert len(one.cloud.everything) == 4


def test_a_request_is_repeated_within_a_turn(tmp_path: Path) -> None:
    one = replace(life(tmp_path), retries=RetryPolicy(attempts=3, first_pause=0.0))
    one.cloud.script("create", *[FAULTS["throttled"]] * 2)
    with stamina.set_testing(True, attempts=3):
        one.run()
    requests = [call for call in one.world.calls("create") if call.at == START]
    assert [call.asked for call in requests[:3]] == [requests[0].asked] * 3


def test_an_order_may_bring_fewer_machines(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.script("create", PartialGrant(1), PartialGrant(1))
    assert one.run().outcome == "done"
    clean(one)
    brought = [event for row in one.rows() if isinstance(event := row.event, ev.Rented)]
    assert [len(event.machines) for event in brought[:2]] == [1, 1]


@pytest.mark.parametrize("error", [NoCapacity("none left"), QuotaReached("no more of these")])
def test_a_market_that_refuses_is_in_back_off_and_another_is_used(
    tmp_path: Path, error: ProviderError
) -> None:
    one = life(tmp_path)
    one.cloud.weather = for_market(0, Refusal(error))
    assert one.run().outcome == "done"
    assert {machine.market for machine in one.cloud.everything} == {MARKETS[1]}
    refused = [call for call in one.world.calls("create") if one.cloud.weather(call)]
    assert one.state().back_offs[MARKETS[0], True].times == len(refused)
    clean(one)


def test_a_market_that_does_not_exist_is_asked_once(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=2000)
    one.cloud.weather = for_market(0, Refusal(NotFound("no such market")))
    assert one.run().outcome == "done"
    asked = [call.asked for call in one.world.calls("create")]
    assert (
        len(
            [
                order
                for order in asked
                if isinstance(order, MachineRequest) and order.market == MARKETS[0]
            ]
        )
        == 1
    )


def test_markets_none_of_which_exists_end_a_run_at_once(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.terms = terms(reliable=0)
    one.cloud.weather = always("create", Refusal(NotFound("the zone is not enabled")))
    ended = one.run()
    assert (ended.outcome, "the zone is not enabled" in ended.message) == ("no capacity", True)
    assert one.cloud.now() - START < 10 * MINUTE


def test_prices_that_stay_away_end_a_run_and_say_why(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    provider_prices(one)
    unknown = Refusal(ProviderError("no prices are stored"))
    one.cloud.weather = lambda call: (
        unknown if call.name == "prices" and call.at > START + 3 * MINUTE else None
    )
    ended = one.run()
    assert (ended.outcome, "nothing can be decided: no prices are stored" in ended.message) == (
        "failed",
        True,
    )
    clean(one)
    reasons = [
        row.event.reason
        for row in one.rows()
        if isinstance(row.event, ev.Decided) and not row.event.wants
    ]
    assert reasons == ["nothing can be decided: no prices are stored"], "logged once"


def test_no_capacity_anywhere_ends_in_time(tmp_path: Path) -> None:
    one = replace(life(tmp_path), limits=RunLimits(without_machines=HOUR))
    one.cloud.weather = always("create", Refusal(NoCapacity("none left")))
    ended = one.run()
    assert ended.outcome == "no capacity"
    assert "none left" in ended.message
    assert HOUR < one.cloud.now() - one.state().started < HOUR + 5 * MINUTE
    requests = [call for call in one.world.calls("create") if call.asked.market == MARKETS[1]]  # type: ignore[attr-defined]
    assert len(requests) <= 24, "a market that refuses is in back-off, on spot and on demand"


def test_a_market_that_evicted_is_not_tried_first(tmp_path: Path) -> None:
    one = life(tmp_path, {8: (MARKETS[0], False)})
    one.run()
    spot = [machine.market for machine in one.cloud.everything if machine.bid is not None]
    assert spot == [MARKETS[0]] * 3 + [MARKETS[1]] * 3


def test_without_credentials_the_leases_end_the_machines(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    provider_prices(one)
    expired = Refusal(NotPermitted("expired; log in again"))
    one.cloud.weather = lambda call: expired if call.at > START + 10 * MINUTE else None
    ended = one.run()
    assert (ended.outcome, ended.message) == ("not permitted", "expired; log in again")
    clean(one)
    leases = max(held.lease_until for held in one.state().machines.values())
    assert one.cloud.now() < leases + 5 * MINUTE
    assert "spent" not in ended.facts, "without prices, the cost is unknown"


def test_a_setting_that_the_cloud_does_not_know_ends_the_run(tmp_path: Path) -> None:
    """The machines that the run already has are returned."""
    one = life(tmp_path)
    unknown = Refusal(BadRequest("no such image"))
    one.cloud.weather = lambda call: (
        unknown if call.name == "create" and one.world.calls("create")[1:] else None
    )
    ended = one.run()
    assert (ended.outcome, ended.message) == ("failed", "no such image")
    clean(one)
    assert len(one.world.calls("create")) == 2


@pytest.mark.parametrize(
    "error", [Throttled("slow down"), Unanswered("no answer"), ProviderError("out of order")]
)
def test_prices_that_are_unavailable_for_a_while(tmp_path: Path, error: ProviderError) -> None:
    one = life(tmp_path, {8: (MARKETS[0], True)})
    provider_prices(one)
    one.limits = RunLimits(budget=10 * NANO_SECONDS_PER_DOLLAR)
    silent = range(START + 3 * MINUTE, START + 20 * MINUTE)
    one.cloud.weather = lambda call: (
        Refusal(error) if call.name == "prices" and call.at in silent else None
    )
    ended = one.run()
    assert ended.outcome == "done"
    assert ended.facts["spent"] == budget.spent(one.state(), one.cloud.now(), TARIFF)
    clean(one)


def test_an_order_without_an_answer_is_given_up(tmp_path: Path) -> None:
    one = replace(life(tmp_path), limits=RunLimits(without_machines=HOUR))
    one.cloud.weather = always("create", Refusal(Unanswered("the line is dead")))
    assert one.run().outcome == "no capacity"
    assert not one.cloud.everything


def test_a_budget_that_will_not_last_is_reported_early(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=2000)
    one.run()
    cost = budget.spent(one.state(), one.cloud.now(), TARIFF)
    short = replace(life(tmp_path / "short", rounds=2000), limits=RunLimits(budget=cost // 2))
    assert short.run().outcome == "budget reached"
    (exceeded,) = (
        row
        for row in short.rows()
        if isinstance(row.event, ev.BudgetExceeded) and row.event.action == ev.FINISH
    )
    assert isinstance(exceeded.event, ev.BudgetExceeded)
    assert exceeded.event.committed == pytest.approx(cost, rel=0.1)
    assert exceeded.at - START < (short.state().at - START) / 3, "long before its end"
    enough = replace(life(tmp_path / "enough", rounds=2000), limits=RunLimits(budget=cost * 2))
    assert enough.run().outcome == "done"
    assert not enough.state().over_budget


def test_a_cloud_that_permits_nothing_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life(tmp_path)
    expired = Refusal(NotPermitted("the credentials have expired"))
    refused, rests = list[Call](), list[float]()

    def meets(call: Call) -> Fault | None:
        if call.name != "list" or one.world.rounds < 4:
            return None
        refused.append(call)
        return expired

    one.cloud.weather = meets
    monkeypatch.setattr("spotctl.run.turn.service.time.sleep", rests.append)
    runner = begun(one, list_every=5.0)
    monkeypatch.setattr("spotctl.run.turn.execute.time.monotonic", lambda: one.cloud.now() / 1e6)
    assert runner.run(one.world.pass_round, lambda: 0).outcome == NOT_PERMITTED
    assert rests == [5.0] * len(refused)
    assert refused

"""How far a run believes a refusal: it asks no market again for which the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.units import MINUTE, SECOND
from spotctl.clouds.errors import (
    MADE_WITHIN,
    NotHere,
    NotPermitted,
    NotYet,
    ProviderError,
    QuotaReached,
    Scope,
    UnknownRefusal,
)
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import SpotctlError
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.run.turn.reconcile import StrategyTerms
from tests.spotctl.clouds.fake import Call, FakeProvider, Fault, Refusal
from tests.spotctl.run.faults import begun, clean
from tests.spotctl.run.worlds import ON_DEMAND, RULE, START, Life, Toil, World, flat, life

PLACES = (("r1", "a"), ("r1", "b"), ("r2", "a"), ("r2", "b"))
MARKETS = tuple(
    Market("local", region, zone, type_)
    for region, zone in PLACES
    for type_ in ("c4.large", "c4.xlarge")
)
PRICES = {market: flat(market, 50_000_000 + number) for number, market in enumerate(MARKETS)}
OFFERS = tuple(Offer(market, 4.0, ON_DEMAND) for market in MARKETS)


def begun_with(
    folder: Path,
    refuses: Callable[[Market, bool], SpotctlError | None],
    markets: Sequence[Market] = MARKETS,
) -> Life:
    """A run whose orders `refuses` decides about, by market and whether spot is meant."""

    def meets(call: Call) -> Fault | None:
        if call.name != "create" or not isinstance(call.asked, MachineRequest):
            return None
        error = refuses(call.asked.market, call.asked.bid is not None)
        return None if error is None else Refusal(error)

    world = World(FakeProvider(Replayed.of(PRICES.values()), START))
    world.cloud.weather = meets
    offers = tuple(offer for offer in OFFERS if offer.market in markets)
    terms = StrategyTerms(offers, Rent(offers[0], 3, None), 64.0, 100.0, None)
    tariff = Tariff(lambda _: RULE, lambda market, _: PRICES[market])
    return replace(life(folder), world=world, work=Toil(world), terms=terms, tariff=tariff)


def orders(one: Life) -> list[tuple[str, str, bool]]:
    asked = [call.asked for call in one.world.calls("create")]
    return [
        (order.market.region, order.market.zone, order.bid is not None)
        for order in asked
        if isinstance(order, MachineRequest)
    ]


def in_scope(
    kind: type[NotHere | QuotaReached | NotPermitted], scope: Scope, words: str = "no"
) -> ProviderError:
    return kind(words, scope)


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        (Scope.ZONE, [("r1", "a", True)]),
        (Scope.REGION, [("r1", "a", True)]),
        (Scope.ORGANISATION, [("r1", "a", True)]),
    ],
)
def test_what_a_place_does_not_have_is_asked_for_once_there(
    tmp_path: Path, scope: Scope, refused: list[tuple[str, str, bool]]
) -> None:
    def refuses(market: Market, _: bool) -> ProviderError | None:
        inside = market.region == "r1" and (scope is not Scope.ZONE or market.zone == "a")
        return in_scope(NotHere, scope) if inside else None

    one = begun_with(tmp_path, refuses)
    assert one.run().outcome == "done"
    assert orders(one)[: len(refused) + 1] == [
        *refused,
        ("r1", "b", True) if scope is Scope.ZONE else ("r2", "a", True),
    ]
    assert orders(one).count(refused[0]) == 1
    clean(one)


@pytest.mark.parametrize(
    ("scope", "outcome"), [(Scope.REGION, "no capacity"), (Scope.ORGANISATION, "not permitted")]
)
def test_places_all_of_which_refuse_end_a_run_with_the_reason(
    tmp_path: Path, scope: Scope, outcome: str
) -> None:
    one = begun_with(
        tmp_path,
        lambda market, _: in_scope(NotHere, scope, f"{market.region} is closed; name others"),
    )
    ended = one.run()
    assert (ended.outcome, len(orders(one))) == (outcome, 2)
    assert "r2 is closed; name others" in ended.message
    assert one.cloud.now() - START < 5 * MINUTE


def test_a_limit_of_spot_machines_in_a_region_is_met_once_and_leaves_those_on_demand(
    tmp_path: Path,
) -> None:
    here = [market for market in MARKETS if market.region == "r1"]
    limit = in_scope(QuotaReached, Scope.REGION, "Max spot instance count exceeded")
    one = begun_with(tmp_path, lambda _, spot: limit if spot else None, here)
    assert one.run().outcome == "done"
    spot = [order for order in orders(one) if order[2]]
    assert len(spot) == 1
    clean(one)


def test_a_quota_that_is_too_small_for_a_type_is_met_once_in_a_region(tmp_path: Path) -> None:
    here = [market for market in MARKETS if market.region == "r1"]
    limit = QuotaReached("VcpuLimitExceeded", Scope.TYPE)
    asked = list[Market]()

    def refuses(market: Market, spot: bool) -> ProviderError | None:
        asked.extend([market] if spot else [])
        return limit if spot and market.instance_type == "c4.large" else None

    one = begun_with(tmp_path, refuses, here)
    assert one.run().outcome == "done"
    assert [market.instance_type for market in asked].count("c4.large") == 1
    assert "c4.xlarge" in {market.instance_type for market in asked}
    clean(one)


def test_an_unknown_refusal_is_heard_twice_in_one_region_and_once_in_others(tmp_path: Path) -> None:
    one = begun_with(tmp_path, lambda *_: UnknownRefusal("the moon is full", "MoonIsFull"))
    ended = one.run()
    assert (ended.outcome, "the moon is full" in ended.message) == ("failed", True)
    assert [region for region, *_ in orders(one)] == ["r1", "r1", "r2"]


def test_a_region_that_refuses_for_an_unknown_reason_leaves_the_others(tmp_path: Path) -> None:
    moon = UnknownRefusal("the moon is full", "MoonIsFull")
    one = begun_with(tmp_path, lambda market, _: moon if market.region == "r1" else None)
    assert one.run().outcome == "done"
    assert [region for region, *_ in orders(one)][:3] == ["r1", "r1", "r2"]
    clean(one)


@pytest.mark.parametrize("known_after", [1, 10_000])
def test_what_was_just_made_is_asked_for_again_for_two_minutes(
    tmp_path: Path, known_after: int
) -> None:
    asked = list[int]()

    def refuses(*_: object) -> SpotctlError | None:
        asked.append(one.cloud.now())
        return NotYet("the profile is not known; correct it") if len(asked) <= known_after else None

    one = begun_with(tmp_path, refuses)
    one.world.round_seconds = 10
    ended = one.run()
    if known_after == 1:
        assert ended.outcome == "done"
        clean(one)
    else:
        assert ended.outcome == "failed"
        assert "the profile is not known; correct it" in ended.message
        assert MADE_WITHIN <= asked[-1] - asked[0] <= MADE_WITHIN + 30 * SECOND
        assert len(set(orders(one))) == 1
    reasons = [row.event.reason for row in one.rows() if isinstance(row.event, ev.Decided)]
    assert [reason for reason in reasons if reason.startswith("waiting: ")] == [
        "waiting: the profile is not known; correct it"
    ]


def test_a_refusal_of_the_account_ends_the_run_at_once(tmp_path: Path) -> None:
    one = begun_with(tmp_path, lambda *_: in_scope(NotPermitted, Scope.ACCOUNT, "upgrade the plan"))
    ended = one.run()
    assert (ended.outcome, ended.message, len(orders(one))) == (
        "not permitted",
        "upgrade the plan",
        1,
    )


def test_the_reason_is_known_before_what_is_left_is_looked_for(tmp_path: Path) -> None:
    one = begun_with(tmp_path, lambda *_: in_scope(NotPermitted, Scope.ACCOUNT, "upgrade the plan"))
    runner, seen = begun(one, rented=True), list[tuple[str, int]]()

    def before_end() -> None:
        seen.append((runner.state.refusal, len(one.world.calls("resources"))))

    runner.run(one.world.pass_round, lambda: 0, before_end)
    assert seen == [("upgrade the plan", 0)]
    assert one.world.calls("resources")

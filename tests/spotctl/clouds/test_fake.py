"""The fake keeps the contracts, and fails as it is scripted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bidbrain.replay.market import Warnings
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    ProviderError,
    QuotaReached,
    Throttled,
    Unanswered,
)
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState
from spotctl.home.errors import BadRequest
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.fake import (
    Call,
    FakeProvider,
    LostAnswer,
    LostRequest,
    PartialGrant,
    Refusal,
    SlowDescribe,
)


class TestContract(ProviderContract, LinkContract):
    @pytest.fixture
    def setting(self) -> Setting:
        fake = FakeProvider(markets.market(), markets.BEGIN)
        return Setting(
            fake,
            markets.CALM,
            markets.BID,
            markets.UNKNOWN,
            markets.python("raise SystemExit(3)"),
            # Long steps, so that hours of its clock take few of them.
            lambda seconds: fake.advance(max(seconds, 30)),
        )


@pytest.fixture
def fake() -> FakeProvider:
    return FakeProvider(
        markets.market(), markets.BEGIN, Warnings(ahead=2 * MINUTE), most_machines=10
    )


def order(token: str = "t", machines: int = 2) -> MachineRequest:
    return markets.order(token, markets.BEGIN + 10 * HOUR, machines)


def wild(token: str = "w", machines: int = 2) -> MachineRequest:
    return replace(order(token, machines), market=markets.WILD)


@pytest.mark.parametrize("kind", [NoCapacity, QuotaReached, Throttled, NotPermitted])
@pytest.mark.parametrize(
    "call",
    [
        "create",
        "list",
        "renew",
        "terminate",
        "assign",
        "status",
        "resources",
        "remove",
        "prices",
        "offers",
    ],
)
def test_a_refused_call_has_no_effect_and_the_next_succeeds(
    fake: FakeProvider, kind: type[ProviderError], call: str
) -> None:
    (machine, _) = fake.create(order())
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: fake.create(order("u")),
        "list": lambda: fake.list({}),
        "renew": lambda: fake.link(machine.id).renew(markets.BEGIN + 20 * HOUR),
        "terminate": lambda: fake.terminate([machine.id]),
        "assign": lambda: fake.link(machine.id).assign(markets.python("pass")),
        "status": lambda: fake.link(machine.id).status(),
        "offers": fake.offers,
        "resources": lambda: fake.resources({}),
        "remove": lambda: fake.remove(fake.resources({})),
        "prices": lambda: fake.prices(markets.CALM, markets.BEGIN, markets.BEGIN),
    }
    before = fake.everything
    fake.script(call, Refusal(kind("not today")))
    with pytest.raises(kind, match="not today"):
        calls[call]()
    assert fake.everything == before
    calls[call]()


@pytest.mark.parametrize(
    "setting", [{"image": "x"}, {"identity": "x"}, {"disk_gib": 100}, {"network": "x"}]
)
def test_settings_of_a_cloud_are_refused_where_machines_have_none(
    fake: FakeProvider, setting: dict[str, Any]
) -> None:
    (name,) = setting
    with pytest.raises(BadRequest, match=f"machines of the fake provider have no {name}"):
        fake.create(replace(order(), **setting))
    assert not fake.everything


def test_a_lost_answer_has_an_effect_and_a_lost_request_has_none(fake: FakeProvider) -> None:
    fake.script("create", LostRequest(), LostAnswer())
    with pytest.raises(Unanswered):
        fake.create(order())
    assert fake.list({}) == ()
    with pytest.raises(Unanswered):
        fake.create(order())
    found = fake.list({})
    assert len(found) == 2
    assert fake.create(order()) == found
    fake.script("terminate", LostAnswer())
    with pytest.raises(Unanswered):
        fake.terminate([found[0].id])
    assert [one.state for one in fake.list({})] == [MachineState.GONE, MachineState.RUNNING]


def test_a_partial_grant_stays_partial(fake: FakeProvider) -> None:
    fake.script("create", PartialGrant(1))
    assert len(fake.create(order(machines=3))) == 1
    assert len(fake.create(order(machines=3))) == 1


def test_the_quota_grants_what_remains_then_nothing(fake: FakeProvider) -> None:
    fake.create(order("a", 8))
    second = fake.create(order("b", 8))
    assert len(second) == 2
    with pytest.raises(QuotaReached, match="10 machines run"):
        fake.create(order("c", 1))
    fake.terminate([second[0].id])
    assert len(fake.create(order("c", 3))) == 1


def test_new_machines_are_listed_late_after_slow_describe(fake: FakeProvider) -> None:
    fake.script("create", SlowDescribe(2))
    rented = fake.create(order())
    assert len(rented) == 2
    assert [len(fake.list({})) for _ in range(4)] == [0, 0, 2, 2]


def test_calls_are_recorded_with_arguments_and_time(fake: FakeProvider) -> None:
    asked = order()
    fake.script("create", Refusal(Throttled("slower")))
    with pytest.raises(Throttled):
        fake.create(asked)
    fake.advance(5)
    fake.create(asked)
    fake.terminate(["fake-0"])
    at = markets.BEGIN + 5 * SECOND
    assert fake.calls == [
        Call("create", asked, markets.BEGIN),
        Call("create", asked, at),
        Call("terminate", ("fake-0",), at),
    ]


def test_the_market_warns_and_evicts(fake: FakeProvider) -> None:
    fake.create(wild())
    fake.advance(28 * 60 - 1)
    assert {one.state for one in fake.list({})} == {MachineState.RUNNING}
    fake.advance(1)
    told = {
        (one.state, one.warned_until)
        for one in (fake.with_status(machine) for machine in fake.list({}))
    }
    assert told == {(MachineState.LEAVING, markets.PEAK_AT)}
    fake.advance(3600)
    assert {(one.ended, one.end_reason) for one in fake.list({})} == {
        (markets.PEAK_AT, EndReason.EVICTED)
    }


def test_a_bid_below_the_price_is_refused(fake: FakeProvider) -> None:
    fake.advance(31 * 60)
    with pytest.raises(NoCapacity, match="more than the bid"):
        fake.create(wild())
    assert len(fake.create(replace(wild(), bid=markets.PEAK))) == 2
    assert len(fake.create(replace(wild("d"), bid=None))) == 2


def test_no_lease_outlives_the_prices(fake: FakeProvider) -> None:
    fake.create(replace(order(), lease_until=markets.CLOSES + HOUR))
    fake.link("fake-0").renew(markets.CLOSES + HOUR)
    fake.advance(3000 * 3600)
    assert {(one.ended, one.end_reason) for one in fake.list({})} == {
        (markets.CLOSES, EndReason.LEASE_ENDED)
    }
    with pytest.raises(NoCapacity, match="its history is replayed from"):
        fake.create(order("later"))


def test_scripted_evictions_crashes_and_exit_codes(fake: FakeProvider) -> None:
    taken, warned, crashed, done = (one.id for one in fake.create(order(machines=4)))
    fake.advance(10)
    now = fake.now()
    fake.evict(taken)
    fake.evict(warned, warning_seconds=30)
    fake.crash(crashed)
    fake.link(done).assign(markets.python("pass", name="job"))
    fake.finish(done, 3)
    found = {one.id: one for one in fake.everything}
    assert (found[taken].ended, found[taken].end_reason) == (now, EndReason.EVICTED)
    assert found[warned].warned_until == now + 30 * SECOND
    assert (found[crashed].ended, found[crashed].end_reason) == (now, EndReason.FAILED)
    assert (found[done].work, found[done].exit_code) == ("job", 3)
    fake.link(done).assign(markets.python("pass", name="next"))
    assert fake.everything[3].exit_code is None
    payload = fake.payload(done)
    assert payload is not None
    assert payload.name == "next"
    fake.advance(30)
    assert fake.list({})[1].end_reason is EndReason.EVICTED
    with pytest.raises(NotFound, match="unknown"):
        fake.evict("unknown")


def test_weather_decides_about_calls_without_a_script(fake: FakeProvider) -> None:
    expired = markets.BEGIN + 60 * SECOND
    fake.weather = lambda call: Refusal(NotPermitted("expired")) if call.at > expired else None
    fake.script("create", PartialGrant(1))
    assert len(fake.create(order())) == 1
    fake.advance(61)
    for call in (
        lambda: fake.list({}),
        lambda: fake.create(order("u")),
        lambda: fake.terminate(["fake-0"]),
    ):
        with pytest.raises(NotPermitted, match="expired"):
            call()
    fake.script("create", PartialGrant(1))
    assert len(fake.create(order("u"))) == 1, "a script comes before the weather"


def test_everything_shows_hidden_machines_and_is_no_call(fake: FakeProvider) -> None:
    fake.script("create", SlowDescribe(5))
    rented = fake.create(order())
    fake.evict(rented[0].id)
    calls = list(fake.calls)
    assert [(one.id, one.end_reason) for one in fake.everything] == [
        (rented[0].id, EndReason.EVICTED),
        (rented[1].id, None),
    ]
    assert fake.calls == calls
    assert fake.list({}) == ()

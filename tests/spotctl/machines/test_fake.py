"""The fake keeps the contract, and fails as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.machines.base import (
    EndReason,
    MachineState,
    NoCapacity,
    NotFound,
    NotPermitted,
    Order,
    ProviderError,
    QuotaReached,
    Throttled,
    Unanswered,
)
from spotctl.machines.fake import (
    Call,
    FakeProvider,
    LostAnswer,
    LostRequest,
    PartialGrant,
    Refusal,
    SlowDescribe,
)
from spotctl.machines.replayed import Warnings
from tests.spotctl.machines import markets
from tests.spotctl.machines.contract import ProviderContract, Stage


class TestContract(ProviderContract):
    @pytest.fixture
    def stage(self) -> Stage:
        fake = FakeProvider(markets.market(), markets.BEGIN)
        return Stage(
            fake,
            markets.CALM,
            markets.BID,
            markets.UNKNOWN,
            markets.python("raise SystemExit(3)"),
            # Long steps, so that nobody waits for hours of an imagined clock.
            lambda seconds: fake.advance(max(seconds, 30)),
        )


@pytest.fixture
def fake() -> FakeProvider:
    return FakeProvider(markets.market(), markets.BEGIN, Warnings(ahead=2 * MINUTE), most_machines=10)


def order(token: str = "t", machines: int = 2) -> Order:
    return markets.order(token, markets.BEGIN + 10 * HOUR, machines)


def wild(token: str = "w", machines: int = 2) -> Order:
    return replace(order(token, machines), market=markets.WILD)


@pytest.mark.parametrize("kind", [NoCapacity, QuotaReached, Throttled, NotPermitted])
@pytest.mark.parametrize("call", ["rent", "machines", "renew", "give_back", "assign", "resources", "remove", "prices"])
def test_a_refused_call_does_nothing_and_the_next_goes_through(
    fake: FakeProvider, kind: type[ProviderError], call: str
) -> None:
    (machine, _) = fake.rent(order())
    calls: dict[str, Callable[[], object]] = {
        "rent": lambda: fake.rent(order("u")),
        "machines": lambda: fake.machines({}),
        "renew": lambda: fake.renew([machine.id], markets.BEGIN + 20 * HOUR),
        "give_back": lambda: fake.give_back([machine.id]),
        "assign": lambda: fake.assign([machine.id], markets.python("pass")),
        "resources": lambda: fake.resources({}),
        "remove": lambda: fake.remove(fake.resources({})),
        "prices": lambda: fake.prices(markets.CALM, markets.BEGIN, markets.BEGIN),
    }
    before = [fake._rented[one].seen(fake.time) for one in fake._rented]
    fake.script(call, Refusal(kind("not today")))
    with pytest.raises(kind, match="not today"):
        calls[call]()
    assert [fake._rented[one].seen(fake.time) for one in fake._rented] == before
    calls[call]()


def test_a_lost_answer_has_happened_and_a_lost_request_has_not(fake: FakeProvider) -> None:
    fake.script("rent", LostRequest(), LostAnswer())
    with pytest.raises(Unanswered):
        fake.rent(order())
    assert fake.machines({}) == ()
    with pytest.raises(Unanswered):
        fake.rent(order())
    found = fake.machines({})
    assert len(found) == 2
    assert fake.rent(order()) == found
    fake.script("give_back", LostAnswer())
    with pytest.raises(Unanswered):
        fake.give_back([found[0].id])
    assert [one.state for one in fake.machines({})] == [MachineState.GONE, MachineState.RUNNING]


def test_a_partial_grant_stays_as_it_was(fake: FakeProvider) -> None:
    fake.script("rent", PartialGrant(1))
    assert len(fake.rent(order(machines=3))) == 1
    assert len(fake.rent(order(machines=3))) == 1


def test_the_quota_grants_what_is_left_then_nothing(fake: FakeProvider) -> None:
    fake.rent(order("a", 8))
    second = fake.rent(order("b", 8))
    assert len(second) == 2
    with pytest.raises(QuotaReached, match="10 machines run"):
        fake.rent(order("c", 1))
    fake.give_back([second[0].id])
    assert len(fake.rent(order("c", 3))) == 1


def test_new_machines_show_late_where_describing_is_slow(fake: FakeProvider) -> None:
    fake.script("rent", SlowDescribe(2))
    rented = fake.rent(order())
    assert len(rented) == 2
    assert [len(fake.machines({})) for _ in range(4)] == [0, 0, 2, 2]


def test_calls_are_recorded_with_what_was_asked_and_when(fake: FakeProvider) -> None:
    asked = order()
    fake.script("rent", Refusal(Throttled("slower")))
    with pytest.raises(Throttled):
        fake.rent(asked)
    fake.advance(5)
    fake.rent(asked)
    fake.give_back(["fake-0"])
    at = markets.BEGIN + 5 * SECOND
    assert fake.calls == [
        Call("rent", asked, markets.BEGIN),
        Call("rent", asked, at),
        Call("give_back", ("fake-0",), at),
    ]


def test_the_market_warns_and_takes(fake: FakeProvider) -> None:
    fake.rent(wild())
    fake.advance(28 * 60 - 1)
    assert {one.state for one in fake.machines({})} == {MachineState.RUNNING}
    fake.advance(1)
    assert {(one.state, one.warned_until) for one in fake.machines({})} == {(MachineState.LEAVING, markets.PEAK_AT)}
    fake.advance(3600)
    assert {(one.ended, one.end_reason) for one in fake.machines({})} == {(markets.PEAK_AT, EndReason.EVICTED)}


def test_a_bid_below_the_price_gets_nothing(fake: FakeProvider) -> None:
    fake.advance(31 * 60)
    with pytest.raises(NoCapacity, match="more than the bid"):
        fake.rent(wild())
    assert len(fake.rent(replace(wild(), bid=markets.PEAK))) == 2
    assert len(fake.rent(replace(wild("d"), bid=None))) == 2


def test_no_lease_outlives_the_prices(fake: FakeProvider) -> None:
    fake.rent(replace(order(), lease_until=markets.CLOSES + HOUR))
    fake.renew(["fake-0"], markets.CLOSES + HOUR)
    fake.advance(3000 * 3600)
    assert {(one.ended, one.end_reason) for one in fake.machines({})} == {(markets.CLOSES, EndReason.LEASE_ENDED)}
    with pytest.raises(NoCapacity, match="its history is replayed from"):
        fake.rent(order("later"))


def test_evictions_crashes_and_results_on_demand_of_the_test(fake: FakeProvider) -> None:
    taken, warned, crashed, done = (one.id for one in fake.rent(order(machines=4)))
    fake.advance(10)
    now = fake.now()
    fake.evict(taken)
    fake.evict(warned, warning_seconds=30)
    fake.crash(crashed)
    fake.assign([done], markets.python("pass", name="job"))
    fake.finish(done, 3)
    found = {one.id: one for one in fake.machines({})}
    assert (found[taken].ended, found[taken].end_reason) == (now, EndReason.EVICTED)
    assert found[warned].warned_until == now + 30 * SECOND
    assert (found[crashed].ended, found[crashed].end_reason) == (now, EndReason.FAILED)
    assert (found[done].work, found[done].exit_code) == ("job", 3)
    fake.assign([done], markets.python("pass", name="next"))
    assert fake.machines({})[3].exit_code is None
    payload = fake.payload(done)
    assert payload is not None
    assert payload.name == "next"
    fake.advance(30)
    assert fake.machines({})[1].end_reason is EndReason.EVICTED
    with pytest.raises(NotFound, match="nobody"):
        fake.evict("nobody")


def test_weather_is_what_calls_meet_that_no_script_is_about(fake: FakeProvider) -> None:
    expired = markets.BEGIN + 60 * SECOND
    fake.weather = lambda call: Refusal(NotPermitted("expired")) if call.at > expired else None
    fake.script("rent", PartialGrant(1))
    assert len(fake.rent(order())) == 1
    fake.advance(61)
    for call in (lambda: fake.machines({}), lambda: fake.rent(order("u")), lambda: fake.give_back(["fake-0"])):
        with pytest.raises(NotPermitted, match="expired"):
            call()
    fake.script("rent", PartialGrant(1))
    assert len(fake.rent(order("u"))) == 1, "a script comes before the weather"


def test_everything_is_seen_whatever_is_hidden_and_is_no_call(fake: FakeProvider) -> None:
    fake.script("rent", SlowDescribe(5))
    rented = fake.rent(order())
    fake.evict(rented[0].id)
    calls = list(fake.calls)
    assert [(one.id, one.end_reason) for one in fake.everything] == [
        (rented[0].id, EndReason.EVICTED),
        (rented[1].id, None),
    ]
    assert fake.calls == calls
    assert fake.machines({}) == ()

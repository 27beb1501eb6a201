"""The availability that a run observed, from its log."""

from __future__ import annotations

from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE
from spotctl.log import events as ev
from spotctl.log.folding import NO_MACHINES, NO_QUOTA, fold
from spotctl.log.log_row import LogRow
from spotctl.log.observed import availability_of
from spotctl.log.state import EVICTED, RunState

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")


def order(intent: int, machines: int = 2, bid: int | None = 10**9) -> ev.RentIntended:
    return ev.RentIntended(intent, MARKET, machines, bid, 10**9, 1.0, reliable=False, lease_until=9 * HOUR)


def granted(intent: int, count: int, at: int) -> ev.Rented:
    return ev.Rented(intent, tuple(ev.Granted(f"m-{intent}-{i}", at) for i in range(count)))


def state(*events: tuple[int, ev.Event], provider: str = "aws") -> RunState:
    began = (0, ev.RunBegan("job", provider, {}, "", 0))
    return fold(LogRow(i, "r", at, event) for i, (at, event) in enumerate((began, *events), start=1))


def test_refusals_grants_evictions_and_returns_are_spans() -> None:
    run = state(
        (MINUTE, order(1)),
        (MINUTE, ev.RentRefused(1, NO_MACHINES, "sold out")),
        (3 * MINUTE, order(2)),
        (3 * MINUTE, granted(2, 1, 3 * MINUTE)),
        (HOUR, ev.MachineWarned("m-2-0", HOUR + 2 * MINUTE, "eviction", "a test")),
        (HOUR + 2 * MINUTE, ev.MachineEnded("m-2-0", HOUR + 2 * MINUTE, EVICTED)),
        (HOUR + 5 * MINUTE, order(3)),
        (HOUR + 5 * MINUTE, granted(3, 2, HOUR + 5 * MINUTE)),
        (2 * HOUR, ev.MachineEnded("m-3-0", 2 * HOUR, "returned")),
    )
    known = [
        (span.since, span.until, span.machines, span.wanted, span.ended) for span in availability_of(run, 3 * HOUR)
    ]
    assert known == [
        (MINUTE, MINUTE, 0, 2, "refused"),
        (3 * MINUTE, HOUR + 2 * MINUTE, 1, 2, "evicted"),
        (HOUR + 5 * MINUTE, 3 * HOUR, 2, 2, ""),
    ]
    assert {span.source for span in availability_of(run, 3 * HOUR)} == {"run r of job"}
    ended = state((0, order(1, machines=1)), (0, granted(1, 1, 0)), (HOUR, ev.MachineEnded("m-1-0", HOUR, "returned")))
    assert [span.ended for span in availability_of(ended, 3 * HOUR)] == ["returned"]


def test_quotas_and_on_demand_machines_say_nothing_about_spot() -> None:
    run = state(
        (0, order(1)),
        (0, ev.RentRefused(1, NO_QUOTA, "no quota")),
        (MINUTE, order(2, bid=None)),
        (MINUTE, granted(2, 2, MINUTE)),
        (2 * MINUTE, order(3)),
    )
    assert availability_of(run, HOUR) == ()


def test_a_replayed_market_has_capacity_whatever_the_price_does() -> None:
    assert availability_of(state((0, order(1)), (0, granted(1, 2, 0)), provider="local"), HOUR) == ()

"""The committed amount: cases solved by hand, and compared with a count by the second."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from bidbrain.billing import billing_rule, rule_of_cloud
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.clouds.provider import Machine, MachineState
from spotctl.log import budget, events as ev
from spotctl.log.budget import Tariff
from spotctl.log.events import Event
from spotctl.log.folding import ABANDONED, fold
from spotctl.log.ledger.project import rows_of
from spotctl.log.state import LogRow, RunState
from spotctl.run.turn.observe import news, settled
from tests.spotctl.run.worlds import MARKETS, OFFERS, ON_DEMAND, PRICES, START, TARIFF

HOURLY = Tariff(lambda _: billing_rule("hourly-refund"), lambda market, _: PRICES[market])
SPOT = 50_000_000


def state(*events: tuple[int, Event]) -> RunState:
    return fold(LogRow(number, "r", START + at, event) for number, (at, event) in enumerate(events))


def order(intent: int, machines: int, bid: int | None, lease: int) -> ev.RentIntended:
    return ev.RentIntended(
        intent, MARKETS[0], machines, bid, ON_DEMAND, 4.0, bid is None, START + lease
    )


def granted(intent: int, machines: int, at: int = 0) -> ev.Rented:
    return ev.Rented(
        intent, tuple(ev.Granted(f"m{intent}-{i}", START + at) for i in range(machines))
    )


def held(machines: int, bid: int | None, lease: int) -> RunState:
    return state((0, order(1, machines, bid, lease)), (0, granted(1, machines)))


def test_committed_is_the_amount_spent_plus_the_bid_until_the_lease_ends() -> None:
    two = held(2, 80_000_000, 20 * MINUTE)
    now = START + 5 * MINUTE
    assert budget.spent(two, now, TARIFF) == 2 * 300 * SPOT
    # 15 minutes of lease and one of teardown are left, at the bid.
    assert budget.committed(two, now, TARIFF, MINUTE) == 2 * (300 * SPOT + 960 * 80_000_000)
    assert (
        budget.renewed(two, ["m1-0"], START + 30 * MINUTE, now, TARIFF, MINUTE) == 600 * 80_000_000
    )


def test_a_bid_is_no_ceiling_where_the_cloud_has_no_bids() -> None:
    """Google's price may rise above what was bid, and the machine runs on."""
    google = Market("gcp", "us-central1", "us-central1-a", "n1-standard-4")
    ordered = replace(order(1, 2, 80_000_000, 20 * MINUTE), market=google)
    asked = state((0, ordered))
    assert budget.committed(asked, START, TARIFF, MINUTE) == 2 * 21 * 60 * ON_DEMAND
    rent = Rent(Offer(google, 4.0, ON_DEMAND), 2, 80_000_000)
    assert (rent.highest_price, replace(rent, offer=OFFERS[0]).highest_price) == (
        ON_DEMAND,
        80_000_000,
    )


def test_started_hours_are_committed_in_full() -> None:
    one = held(1, None, 50 * MINUTE)
    now = START + 5 * MINUTE
    assert budget.committed(one, now, HOURLY, MINUTE) == 3600 * ON_DEMAND
    assert budget.renewed(one, ["m1-0"], START + 59 * MINUTE, now, HOURLY, MINUTE) == 0
    assert (
        budget.renewed(one, ["m1-0"], START + 60 * MINUTE, now, HOURLY, MINUTE) == 3600 * ON_DEMAND
    )
    assert budget.bought(MARKETS[0], 3, 80_000_000, HOUR + 1, HOURLY) == 3 * 2 * 3600 * 80_000_000


def test_disks_and_addresses_are_spent_and_committed_by_the_second() -> None:
    ordered = replace(order(1, 2, 80_000_000, 20 * MINUTE), disk=3_000_000, address=5_000_000)
    now, two = START + 5 * MINUTE + 1, state((0, ordered), (0, granted(1, 2)))
    assert budget.spent(two, now, TARIFF) == 2 * 301 * (SPOT + 8_000_000)
    assert budget.committed(two, now, TARIFF, MINUTE) == 2 * (
        301 * SPOT + 959 * 80_000_000 + 1260 * 8_000_000
    )
    assert budget.committed(state((0, ordered)), START, TARIFF, MINUTE) == 2 * 1260 * 88_000_000
    free = state(
        (0, ordered),
        (0, granted(1, 2)),
        *((1, ev.MachineEnded(f"m1-{i}", now, "evicted")) for i in range(2)),
    )
    assert budget.spent(free, now, HOURLY) == 2 * 301 * 8_000_000
    sent = state((0, ordered), (0, granted(1, 2)), (1, ev.Sent("m1-0", START, 2**29, 90_000_000)))
    assert budget.spent(sent, START, TARIFF) == 45_000_000 * 3600


def test_requests_without_an_answer_are_committed() -> None:
    ordered = state((0, order(1, 2, 80_000_000, 20 * MINUTE)))
    assert budget.committed(ordered, START + MINUTE, TARIFF, MINUTE) == 2 * 21 * 60 * 80_000_000
    renewing = state(
        (0, order(1, 1, 80_000_000, 20 * MINUTE)),
        (0, granted(1, 1)),
        (1, ev.RenewIntended(2, ("m1-0",), START + 30 * MINUTE)),
    )
    assert budget.committed(renewing, START, TARIFF, 0) == 30 * 60 * 80_000_000


def test_an_order_without_an_answer_is_committed_until_a_later_list_settles_it() -> None:
    refused = (1, ev.RentRefused(1, ABANDONED, "the provider did not answer the order in time"))
    unanswered = state((0, order(1, 2, 80_000_000, 20 * MINUTE)), refused)
    for now in (START + MINUTE, START + 6 * MINUTE, START + HOUR):
        assert budget.committed(unanswered, now, TARIFF, MINUTE) == 2 * 21 * 60 * 80_000_000
    early = START + 1 + budget.LISTING_DELAY
    assert settled(unanswered, early - 1) == []
    assert settled(unanswered, early) == [ev.OrderSettled(1)]
    found = state(
        (0, order(1, 2, 80_000_000, 20 * MINUTE)),
        refused,
        (2, granted(1, 1)),
        (3, ev.OrderSettled(1)),
    )
    assert budget.committed(found, START, TARIFF, MINUTE) == 21 * 60 * 80_000_000, (
        "the machine that was found"
    )


def test_an_eviction_frees_its_hour_and_its_committed_amount() -> None:
    one = state(
        (0, order(1, 1, 80_000_000, HOUR)),
        (0, granted(1, 1)),
        (1, ev.MachineEnded("m1-0", START + MINUTE, "evicted")),
    )
    assert budget.committed(one, START + 2 * MINUTE, HOURLY, MINUTE) == 0


@given(
    st.integers(1, 3),
    st.integers(61, 4000),
    st.integers(61, 4000),
    st.integers(0, 300),
    st.integers(SPOT, 10**9),
)
def test_no_future_costs_more_than_the_committed_amount(
    machines: int, lease: int, ends: int, teardown: int, bid: int
) -> None:
    now = START + 61 * SECOND
    before = held(machines, bid, lease * SECOND)
    promised = budget.committed(before, now, TARIFF, teardown * SECOND)
    end = START + min(max(ends, 61), max(lease + teardown, 61)) * SECOND
    gone = [(1, ev.MachineEnded(f"m1-{i}", end, "lease ended")) for i in range(machines)]
    after = state((0, order(1, machines, bid, lease * SECOND)), (0, granted(1, machines)), *gone)
    assert budget.spent(after, end, TARIFF) <= promised


def test_a_superseded_renewal_frees_nothing() -> None:
    renewals: list[tuple[int, Event]] = [
        (1, ev.RenewIntended(2, ("m1-0",), START + 60 * MINUTE)),
        (2, ev.RenewIntended(3, ("m1-0",), START + 70 * MINUTE)),
        (3, ev.Renewed(3)),
    ]
    overtaken = state((0, order(1, 1, None, 20 * MINUTE)), (0, granted(1, 1)), *renewals)
    assert budget.committed(overtaken, START + 4 * MINUTE, HOURLY, 0) == 2 * 3600 * ON_DEMAND
    answered = state(
        (0, order(1, 1, None, 20 * MINUTE)), (0, granted(1, 1)), *renewals, (4, ev.Renewed(2))
    )
    assert answered.machines["m1-0"].lease_until == START + 70 * MINUTE


VAST = Market("vast", "vast-us", "verified", "1xRTX_4090")
LOW, HIGH = 200_000_000, 300_000_000
BY_BID = Tariff(lambda _: rule_of_cloud("vast"), lambda market, _: PRICES[market])
RAISE = (10 * MINUTE, ev.BidIntended(2, "m1-0", HIGH, "rivals bid more"))


def at_bid(*events: tuple[int, Event]) -> RunState:
    return state(
        (0, ev.RunBegan("small", "vast", {}, "", 0)),
        (0, replace(order(1, 1, LOW, 30 * MINUTE), market=VAST)),
        (0, granted(1, 1)),
        *events,
    )


def test_a_raised_bid_is_committed_before_it_is_sent_and_paid_from_then_on() -> None:
    now = START + 10 * MINUTE
    more = 20 * 60 * (HIGH - LOW)
    assert budget.raised(at_bid(), "m1-0", HIGH, now, BY_BID, 0) == more
    before = budget.committed(at_bid(), now, BY_BID, 0)
    for course in (
        at_bid(RAISE),
        at_bid(RAISE, (10 * MINUTE + SECOND, ev.BidChanged(2, "m1-0", HIGH))),
    ):
        assert budget.committed(course, now, BY_BID, 0) == before + more
        later = START + 20 * MINUTE
        assert budget.spent(course, later, BY_BID) == 600 * LOW + 600 * HIGH
        assert sum(row.amount for row in rows_of(course, later, BY_BID)) == budget.spent(
            course, later, BY_BID
        )


def test_a_bid_that_is_raised_within_a_second_counts_for_all_of_it() -> None:
    """The cloud bills the rest of that second at the new bid."""
    middle = 10 * MINUTE + SECOND // 2
    course = at_bid(
        (middle, ev.BidIntended(2, "m1-0", HIGH)), (middle, ev.BidChanged(2, "m1-0", HIGH))
    )
    before = budget.committed(at_bid(), START + middle, BY_BID, 0)
    assert budget.spent(course, START + 20 * MINUTE, BY_BID) == 600 * LOW + 600 * HIGH
    added = budget.raised(at_bid(), "m1-0", HIGH, START + middle, BY_BID, 0)
    assert budget.committed(course, START + middle, BY_BID, 0) == before + added


def test_a_bid_that_was_not_raised_costs_what_it_did() -> None:
    refused = at_bid(RAISE, (11 * MINUTE, ev.BidChanged(2, "m1-0", LOW, "it is gone")))
    later = START + 20 * MINUTE
    assert refused.open == {}
    assert budget.spent(refused, later, BY_BID) == 1200 * LOW
    assert budget.committed(refused, later, BY_BID, 0) == 1800 * LOW


def test_a_list_tells_what_became_of_a_bid_whose_answer_was_lost() -> None:
    for listed in (LOW, HIGH):
        machine = Machine("m1-0", VAST, listed, MachineState.RUNNING, START, {})
        (told,) = [
            each
            for each in news(at_bid(RAISE), [machine], START, "vast")
            if isinstance(each, ev.BidChanged)
        ]
        assert told == ev.BidChanged(2, "m1-0", listed)
        after = at_bid(RAISE, (11 * MINUTE, told))
        assert not after.open
        assert after.machines["m1-0"].bid == listed


def test_a_bid_that_somebody_else_has_raised_counts() -> None:
    machine = Machine("m1-0", VAST, HIGH, MachineState.RUNNING, START, {})
    assert ev.BidChanged(0, "m1-0", HIGH) in news(at_bid(), [machine], START, "vast")
    assert budget.spent(
        at_bid((MINUTE, ev.BidChanged(0, "m1-0", HIGH))), START + 2 * MINUTE, BY_BID
    ) == 60 * (LOW + HIGH)

"""What earlier runs tell."""

from __future__ import annotations

import pytest

from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE
from spotctl.log import events as ev
from spotctl.log.events import Event
from spotctl.log.state import LogRow
from spotctl.planning.facts import hazards
from spotctl.run.start.earlier_runs import observations_of
from tests.spotctl.planning.test_learning import AT, SMALL, events, learned_of, no_prices

REPLAYED = Market.parse("local/sim-east/a/c4.xlarge")


def test_a_run_is_observed_by_hand() -> None:
    told = events(
        SMALL,
        "evicted",
        50,
        (2, ev.Progressed(0, None, 1, ready=(ev.Moment("reliable", AT + 2 * MINUTE),))),
        (20, ev.Progressed(1, None, 1, ready=(ev.Moment("a", AT + 4 * MINUTE),))),
        (60, ev.Progressed(9, None, 1, ready=(ev.Moment("b", AT + 60 * MINUTE),))),
        (
            120,
            ev.Progressed(33, None, 2, redone=(ev.Stretch(AT + 110 * MINUTE, AT + 120 * MINUTE),)),
        ),
    )
    one = observations_of(told, no_prices())
    assert one is not None
    assert (one.wall_ended, one.done) == (77, True)
    assert list(one.startups) == [(4 + 60) / 2 * MINUTE, 2 * MINUTE]
    assert list(one.losses) == [10 * MINUTE]
    # Alone from minute 4 to 60, then both until work is done again from 110 on.
    assert list(one.clocks.items()) == [(1, 9.0), (2, 24.0)]
    assert [hours["c4.xlarge"] for hours in one.hours.values()] == pytest.approx(
        [56 / 60, 100 / 60]
    )
    assert one.machine_hours == pytest.approx(156 / 60)
    (evidence,) = one.evidence
    # Two machines of one order count as one: they ran for two hours, and one of them was evicted.
    assert (evidence.exposure.evictions, evidence.exposure.hours) == (0.5, 2.0)


@pytest.mark.parametrize(("price", "counts"), [(50, True), (100, True), (101, False)])
def test_an_eviction_that_the_price_explains_is_no_hazard(price: int, counts: bool) -> None:
    one = observations_of(events(SMALL, "evicted", price), no_prices())
    assert one is not None
    assert bool(one.evidence[0].exposure.evictions) == counts
    replayed = observations_of(events(REPLAYED, "evicted", price), no_prices())
    assert replayed is not None
    assert bool(replayed.evidence) == counts


def test_an_order_that_is_evicted_as_a_whole_says_as_much_as_one_machine() -> None:
    """Large orders would otherwise make a rate look known after one bad hour."""

    def rate(machines: int) -> tuple[float, float, float]:
        names = [f"m{number}" for number in range(machines)]
        told: list[Event] = [
            ev.RunBegan("job", "aws", {"kind": "agileml"}, "", 0),
            ev.RentIntended(1, SMALL, machines, 100, 400, 4.0, False, AT + HOUR),
            ev.Rented(1, tuple(ev.Granted(name, AT) for name in names)),
            *(ev.MachineEnded(name, AT + 2 * HOUR, "evicted") for name in names),
            ev.Priced(SMALL, "per-second", (AT, AT + 2 * HOUR), (50, 50)),
            ev.RunEnded("done", "", 77),
        ]
        one = observations_of(
            [LogRow(number, "job-1", AT, event) for number, event in enumerate(told)], no_prices()
        )
        assert one is not None
        met = hazards((), AT, learned_of(one).evidence)(SMALL)
        assert met is not None
        return met.rate

    assert rate(8) == pytest.approx(rate(1))

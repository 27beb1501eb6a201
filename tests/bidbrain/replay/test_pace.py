"""The price of time at which a strategy matches a rival's run time, from the training span
alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.lab.backtest.run import inputs_of, run_strategy, set_up_in, set_ups_in
from bidbrain.lab.backtest.scenario import BadScenario, Scenario
from bidbrain.replay import pace
from bidbrain.replay.pace import PastJobs
from bidbrain.strategies.base import Decision, Situation, Strategy, TimePrice
from bidbrain.strategies.registry import USUAL_SHARE, lookahead_of, usual_price_of_time
from bidbrain.strategies.standard import Standard
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, Span
from tests.bidbrain.lab.backtest.test_run import HISTORIES, scenario

ZONE = "us-east-1a"
BASELINE_USD = 4 * 1000 / NANOS_PER_DOLLAR


def found(known: Scenario, rival: Strategy | None = None) -> TimePrice | None:
    offers = known.offers_in(ZONE)
    make = lookahead_of(inputs_of(known, ZONE), "lookahead")
    past = PastJobs(known.hours, known.most_nu)
    return past.price_of_time(
        inputs_of(known, ZONE), lambda usd: make(offers, usd), rival or Standard()
    )


def test_the_price_of_time_is_the_lowest_that_matches_the_rival_in_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "MARGIN", 0.0)
    known = scenario(hours=(3.0,))
    offers = known.offers_in(ZONE)
    make = lookahead_of(inputs_of(known, ZONE), "lookahead")
    for asked in (0.3 * BASELINE_USD, 0.9 * BASELINE_USD):
        again = found(known, make(offers, asked))
        assert again is not None
        assert again.usd_per_hour <= asked + 2 * BASELINE_USD / 2**8


def test_a_slow_rival_is_matched_at_almost_no_price_of_time() -> None:
    price = found(scenario(hours=(3.0,)))
    assert price is not None
    assert price.usd_per_hour <= 2 * BASELINE_USD / 2**8
    assert (price.basis, price.note) == (
        "the lowest value at which it was as fast as standard in past prices",
        "",
    )


def test_a_pace_that_cannot_be_reached_is_said() -> None:
    """A rival on demand needs no restart; at half of the room, no price of time makes bids as
    fast."""

    class Instant:
        name = "instant"

        def decide(self, situation: Situation) -> Decision:
            rents = () if situation.holdings else (replace(situation.baseline, machines=1000),)
            return Decision(rents)

    price = found(scenario(hours=(3.0,)), Instant())
    assert price is not None
    assert price.usd_per_hour == 2 * BASELINE_USD
    assert price.note.startswith("slower than instant in past prices even if an hour is valued at ")


def test_the_price_of_time_does_not_depend_on_the_test_span() -> None:
    known = scenario()
    other = tuple(
        PriceSeries(one.market, one.times, np.where(one.times > known.train.end, 777, one.prices))
        for one in HISTORIES
    )
    fast = set_up_in(known, "proteus", ZONE).strategy
    assert found(known, fast) == found(replace(known, histories=other), fast)


def test_the_usual_price_of_time_applies_when_training_is_too_short() -> None:
    start = HISTORIES[0].first
    short = scenario(train=Span(start, start + 10 * HOUR), hours=(6.0,))
    assert found(short) is None
    assert usual_price_of_time(inputs_of(short, ZONE)).usd_per_hour == pytest.approx(
        USUAL_SHARE * BASELINE_USD
    )


def test_lookahead_takes_a_price_of_time_or_finds_one() -> None:
    known = scenario(starts=4)
    for name in ("lookahead", "lookahead:0", "lookahead:0.000001"):
        results = run_strategy(known, ZONE, set_ups_in(known, name, ZONE))
        assert {result.scheme for result in results} == {name}
        assert all(result.end is not None for result in results)


@pytest.mark.parametrize(
    "name", ["lookahead:soon", "lookahead:-1", "lookahead:inf", "lookahead:nan"]
)
def test_an_invalid_price_of_time_is_refused(name: str) -> None:
    with pytest.raises(BadScenario, match="not a price of time"):
        set_up_in(scenario(), name, ZONE)

"""Properties of every plan of `auto`, on a few drawn jobs; `python -m
tests.spotctl.planning.properties` checks thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from spotctl.planning.forecast import forecast_of
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.drawn_jobs import PLACES, Case, Prices, case_of, drawn
from tests.spotctl.planning.properties import PROPERTIES, coarse_plays, costs_no_more, plan_of

_ANY = TypeVar("_ANY")
TEN = settings(max_examples=10, suppress_health_check=list(HealthCheck))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    def pick(values: Sequence[_ANY]) -> _ANY:
        return draw(st.sampled_from(values))

    return drawn(pick, small=True)


@pytest.mark.parametrize("name", ["physical", "figures", "has-cure", "cures"])
@TEN
@given(cases())
def test_properties_that_compare_no_plans_hold_of_ten_drawn_jobs(name: str, case: Case) -> None:
    with coarse_plays():
        PROPERTIES[name](case)


def test_on_demand_machines_are_compared_that_are_fast_enough() -> None:
    """Without a deadline a job may take twice its hours: the cheapest machines on demand take 16
    times as long, and the fast ones cost less than waiting for spot machines."""
    drawn_prices = {
        ("a.large", "b"): Prices("steps", 0.7, 149),
        ("b.large", "b"): Prices("sawtooth", 0.3, 12),
        ("b.huge", "b"): Prices("sawtooth", 0.45, 558),
    }
    case = Case(
        year=2026,
        days=3,
        prices=tuple(drawn_prices.get(place, Prices("flat", 1.1, 0)) for place in PLACES),
        types=("b.huge", "a.large", "b.large"),
        zones=("b",),
        kind="command",
        machines=4,
        hours=1,
        on=None,
    )
    with coarse_plays():
        assert costs_no_more(case, replace(case, strategy="on-demand"))


@pytest.mark.parametrize(
    ("number", "name"), [(5, "named-strategy"), (7, "another-type"), (9, "another-type")]
)
def test_faster_machines_are_taken_where_time_is_worth_more_than_they_cost(
    number: int, name: str
) -> None:
    """Types were compared by the cost of their work alone: $0.48 in 12.1 hours, at a dollar for an
    hour, where $5.17 in 1.6 hours could be had."""
    assert PROPERTIES[name](case_of(23, number, small=True))


@pytest.mark.parametrize(("kind", "value_of_time"), [("command", None), ("training", 1)])
def test_a_job_waits_while_spot_machines_cost_nearly_as_much_as_on_demand(
    kind: str, value_of_time: int | None
) -> None:
    """The price rises to 96% of that on demand for two hours of six, as now, and is a quarter of
    that in the others."""
    case = Case(
        year=2016,
        days=14,
        prices=tuple(Prices("sawtooth", 0.24, 58) for _ in PLACES),
        types=("a.large",),
        zones=("b",),
        kind=kind,
        machines=1,
        hours=4,
        on=None,
        checkpoint_gb=2 if kind == "command" else None,
        value_of_time=value_of_time,
    )
    with coarse_plays():
        plan = plan_of(case)
        at_once = plan_of(replace(case, strategy="price-capacity"))

    assert plan is not None
    assert at_once is not None
    assert at_once.cost.choice[0].rent.bid is not None
    assert plan.decision.reason.startswith("waits for spot")
    assert forecast_of(plan).usd.median < 0.7 * forecast_of(at_once).usd.median
    text = dict(summary(plan))
    assert text["machines"].startswith("at the latest 1 x a.large")
    assert "; waits while spot machines are dear, but not beyond" in text["time"]


def test_a_job_that_waits_is_played_until_its_guard_rents_machines() -> None:
    """It waits for twelve of fifteen hours: plays that ended before had no bill at all."""
    with coarse_plays():
        assert PROPERTIES["physical"](case_of(3, 6, small=True))


def test_a_slower_training_without_a_reliable_machine_is_weighed_by_the_value_of_its_time() -> None:
    """Ten cents an hour, and half the cost in twice the time."""
    with coarse_plays():
        assert PROPERTIES["another-type"](case_of(3, 2, small=True))


def test_a_job_has_any_strategy_with_which_it_keeps_its_budget() -> None:
    """By the usual strategy and on demand it costs more than it may, by lookahead less."""
    with coarse_plays():
        assert PROPERTIES["named-strategy"](case_of(21, 33, small=True))
